// The few driver types that our public headers name, declared as <cuda.h> declares them, so that
// including either one, both, or them in any order works.
#pragma once

extern "C" {
typedef struct CUstream_st* CUstream;
typedef struct CUkern_st* CUkernel;
typedef struct CUevent_st* CUevent;
typedef struct CUgraphNode_st* CUgraphNode;
typedef struct CUgraphExec_st* CUgraphExec;
}
