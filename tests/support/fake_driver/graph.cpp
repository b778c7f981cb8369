// Graphs and their kernel nodes; launching an executable graph records its launches again.
#include <algorithm>

#include "tests/support/fake_driver/device.hpp"
#include "tests/support/fake_driver/kernel.hpp"
#include "tests/support/fake_driver/user_object.hpp"

namespace fake_driver {
namespace {

CUresult kernel_node(CUgraphNode node) {
  if (!state().nodes.holds(node) || node->type != CU_GRAPH_NODE_TYPE_KERNEL)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

// The launch that node parameters describe. It keeps the attributes of `launch`.
CUresult make_launch(const CUDA_KERNEL_NODE_PARAMS& params, KernelLaunch& launch) {
  CUcontext context = params.func == nullptr ? params.ctx : nullptr;
  if (context == nullptr) FAKE_DRIVER_TRY(current_context(context));
  const auto handle =
      params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
  // Only kernels go without a context of their own.
  if (state().functions.holds(handle)) context = handle->context;
  CUlaunchConfig config{params.gridDimX,          params.gridDimY,
                        params.gridDimZ,          params.blockDimX,
                        params.blockDimY,         params.blockDimZ,
                        params.sharedMemBytes,    nullptr,
                        launch.attributes.data(), static_cast<unsigned>(launch.attributes.size())};
  KernelLaunch made;
  FAKE_DRIVER_TRY(make_launch(config, handle, params.kernelParams, params.extra, context, made));
  launch = std::move(made);
  return CUDA_SUCCESS;
}

CUgraphExec_st::Step* find_step(CUgraphExec exec, CUgraphNode node) {
  if (!state().graph_execs.holds(exec)) return nullptr;
  for (auto& step : exec->steps)
    if (step.node == node) return &step;
  return nullptr;
}

}  // namespace
}  // namespace fake_driver

using namespace fake_driver;

extern "C" {

CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
  FAKE_DRIVER_ENTER(cuGraphCreate);
  const std::lock_guard lock(state().mutex);
  if (graph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *graph = state().graphs.add(std::make_unique<CUgraph_st>());
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  FAKE_DRIVER_ENTER(cuGraphDestroy);
  Destructors destructors;
  const std::lock_guard lock(state().mutex);
  if (!state().graphs.holds(graph)) return CUDA_ERROR_INVALID_VALUE;
  destructors.release(graph->kept);
  for (auto* node : graph->nodes) state().nodes.remove(node);
  state().graphs.remove(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* clone, CUgraph graph) {
  FAKE_DRIVER_ENTER(cuGraphClone);
  const std::lock_guard lock(state().mutex);
  if (clone == nullptr || !state().graphs.holds(graph)) return CUDA_ERROR_INVALID_VALUE;
  *clone = state().graphs.add(std::make_unique<CUgraph_st>());
  std::map<CUgraphNode, CUgraphNode> copies;  // nodes come after what they depend on
  for (auto* node : graph->nodes) {
    auto copy = std::make_unique<CUgraphNode_st>(*node);
    copy->graph = *clone;
    for (auto& before : copy->after) before = copies.at(before);
    copies[node] = state().nodes.add(std::move(copy));
    (*clone)->nodes.push_back(copies[node]);
  }
  (*clone)->kept = graph->kept;
  for (auto* object : graph->kept) ++object->references;
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  FAKE_DRIVER_ENTER(cuGraphGetNodes);
  const std::lock_guard lock(state().mutex);
  if (count == nullptr || !state().graphs.holds(graph)) return CUDA_ERROR_INVALID_VALUE;
  if (nodes == nullptr) {
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
  }
  for (std::size_t i = 0; i < *count; ++i)
    nodes[i] = i < graph->nodes.size() ? graph->nodes[i] : nullptr;
  *count = std::min(*count, graph->nodes.size());
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  FAKE_DRIVER_ENTER(cuGraphNodeGetType);
  const std::lock_guard lock(state().mutex);
  if (type == nullptr || !state().nodes.holds(node)) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  FAKE_DRIVER_ENTER(cuGraphAddKernelNode);
  const std::lock_guard lock(state().mutex);
  if (node == nullptr || params == nullptr || !state().graphs.holds(graph) ||
      (count > 0 && dependencies == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i)
    if (!state().nodes.holds(dependencies[i]) || dependencies[i]->graph != graph)
      return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_unique<CUgraphNode_st>();
  made->graph = graph;
  made->type = CU_GRAPH_NODE_TYPE_KERNEL;
  made->after.assign(dependencies, dependencies + count);
  FAKE_DRIVER_TRY(make_launch(*params, made->launch));
  *node = state().nodes.add(std::move(made));
  graph->nodes.push_back(*node);
  return CUDA_SUCCESS;
}

// Names the kernel as it was named when the node was made: `func` for a function, else `kern`.
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* params) {
  FAKE_DRIVER_ENTER(cuGraphKernelNodeGetParams);
  const std::lock_guard lock(state().mutex);
  FAKE_DRIVER_TRY(kernel_node(node));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto& launch = node->launch;
  node->parameter_list.clear();
  for (const auto& each : launch.kernel->code->parameters)
    node->parameter_list.push_back(launch.parameters.data() + each.offset);
  *params = {};
  params->func = launch.function;
  params->gridDimX = launch.grid[0];
  params->gridDimY = launch.grid[1];
  params->gridDimZ = launch.grid[2];
  params->blockDimX = launch.block[0];
  params->blockDimY = launch.block[1];
  params->blockDimZ = launch.block[2];
  params->sharedMemBytes = launch.shared_bytes;
  params->kernelParams = node->parameter_list.data();
  params->kern = launch.function == nullptr ? launch.kernel : nullptr;
  params->ctx = launch.context;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
  FAKE_DRIVER_ENTER(cuGraphKernelNodeSetParams);
  const std::lock_guard lock(state().mutex);
  FAKE_DRIVER_TRY(kernel_node(node));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return make_launch(*params, node->launch);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUlaunchAttributeID which,
                                       CUlaunchAttributeValue* value) {
  FAKE_DRIVER_ENTER(cuGraphKernelNodeGetAttribute);
  const std::lock_guard lock(state().mutex);
  FAKE_DRIVER_TRY(kernel_node(node));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = {};
  for (const auto& each : node->launch.attributes)
    if (each.id == which) *value = each.value;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUlaunchAttributeID which,
                                       const CUlaunchAttributeValue* value) {
  FAKE_DRIVER_ENTER(cuGraphKernelNodeSetAttribute);
  const std::lock_guard lock(state().mutex);
  FAKE_DRIVER_TRY(kernel_node(node));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto changed = node->launch;
  auto& attributes = changed.attributes;
  const auto at = std::find_if(attributes.begin(), attributes.end(),
                               [which](const auto& each) { return each.id == which; });
  CUlaunchAttribute attribute{};
  attribute.id = which;
  attribute.value = *value;
  if (at != attributes.end())
    *at = attribute;
  else
    attributes.push_back(attribute);
  FAKE_DRIVER_TRY(check(changed));
  node->launch = std::move(changed);
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  FAKE_DRIVER_ENTER(cuGraphInstantiateWithFlags);
  const std::lock_guard lock(state().mutex);
  if (exec == nullptr || !state().graphs.holds(graph)) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_unique<CUgraphExec_st>();
  for (auto* node : graph->nodes) {
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL && !state().kernels.holds(node->launch.kernel))
      return CUDA_ERROR_INVALID_HANDLE;
    made->steps.push_back({node, true, node->launch, node->work});
  }
  made->kept = graph->kept;
  for (auto* object : made->kept) ++object->references;
  *exec = state().graph_execs.add(std::move(made));
  return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS* params) {
  FAKE_DRIVER_ENTER(cuGraphExecKernelNodeSetParams);
  const std::lock_guard lock(state().mutex);
  FAKE_DRIVER_TRY(kernel_node(node));
  auto* step = find_step(exec, node);
  if (step == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto launch = step->launch;
  FAKE_DRIVER_TRY(make_launch(*params, launch));
  // A node stays in its context.
  if (launch.context != step->launch.context) return CUDA_ERROR_INVALID_VALUE;
  step->launch = std::move(launch);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
  FAKE_DRIVER_ENTER(cuGraphNodeSetEnabled);
  const std::lock_guard lock(state().mutex);
  auto* step = find_step(exec, node);
  if (step == nullptr) return CUDA_ERROR_INVALID_VALUE;
  step->enabled = enabled != 0;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned* enabled) {
  FAKE_DRIVER_ENTER(cuGraphNodeGetEnabled);
  const std::lock_guard lock(state().mutex);
  const auto* step = find_step(exec, node);
  if (step == nullptr || enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *enabled = step->enabled ? 1 : 0;
  return CUDA_SUCCESS;
}

// In the order in which the nodes were made, which their dependencies allow. Inside a capture this
// would make a child graph, which this driver has not.
CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  FAKE_DRIVER_ENTER(cuGraphLaunch);
  const std::lock_guard lock(state().mutex);
  if (!state().graph_execs.holds(exec)) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  CUstream stream = nullptr;
  FAKE_DRIVER_TRY(resolve_stream(handle, context, stream));
  FAKE_DRIVER_TRY(may_enqueue(stream, context));
  if (capture_of(stream) != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  for (const auto& step : exec->steps) {
    if (!step.enabled) continue;
    if (step.work) {
      step.work();
      continue;
    }
    if (step.launch.kernel == nullptr) continue;
    // The real driver would run code that is gone.
    if (!state().kernels.holds(step.launch.kernel)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    record(step.launch, Origin::replayed, handle);
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  FAKE_DRIVER_ENTER(cuGraphExecDestroy);
  Destructors destructors;
  const std::lock_guard lock(state().mutex);
  if (!state().graph_execs.remove(exec)) return CUDA_ERROR_INVALID_VALUE;
  destructors.release(exec->kept);
  return CUDA_SUCCESS;
}

}  // extern "C"
