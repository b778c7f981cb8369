#include "tests/support/fake_driver/user_object.hpp"

#include <utility>

namespace fake_driver {

void Destructors::release(const std::vector<CUuserObject>& objects) {
  for (auto* object : objects)
    if (--object->references == 0) {
      state().user_objects.remove(object);
      gone_.push_back(object);
    }
}

Destructors::~Destructors() {
  if (gone_.empty()) return;
  attention.fetch_or(kDestroying);
  auto& thread = this_thread();
  thread.destroys_user_object = true;
  for (auto* object : gone_) object->destroy(object->data);
  thread.destroys_user_object = false;
}

}  // namespace fake_driver

using namespace fake_driver;

extern "C" {

CUresult cuUserObjectCreate(CUuserObject* object, void* data, CUhostFn destroy, unsigned references,
                            unsigned flags) {
  FAKE_DRIVER_ENTER(cuUserObjectCreate);
  const std::lock_guard lock(state().mutex);
  if (object == nullptr || destroy == nullptr || references == 0 ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_unique<CUuserObject_st>();
  made->data = data;
  made->destroy = destroy;
  made->references = references;
  *object = state().user_objects.add(std::move(made));
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  FAKE_DRIVER_ENTER(cuUserObjectRelease);
  Destructors destructors;
  const std::lock_guard lock(state().mutex);
  if (!state().user_objects.holds(object) || count == 0 || count > object->references)
    return CUDA_ERROR_INVALID_VALUE;
  destructors.release(std::vector<CUuserObject>(count, object));
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                 unsigned flags) {
  FAKE_DRIVER_ENTER(cuGraphRetainUserObject);
  const std::lock_guard lock(state().mutex);
  const bool moves = flags == CU_GRAPH_USER_OBJECT_MOVE;
  if (!state().graphs.holds(graph) || !state().user_objects.holds(object) || count == 0 ||
      (flags != 0 && !moves) || (moves && count > object->references))
    return CUDA_ERROR_INVALID_VALUE;
  if (!moves) object->references += count;
  graph->kept.insert(graph->kept.end(), count, object);
  return CUDA_SUCCESS;
}

}  // extern "C"
