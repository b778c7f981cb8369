#include "runtime/launch_attributes.hpp"

#include "runtime/launch_checks.hpp"
#include "runtime/version_text.hpp"

namespace kiln {
namespace {

CUaccessProperty property_of(CachePolicy policy) {
  switch (policy) {
    case CachePolicy::streaming:
      return CU_ACCESS_PROPERTY_STREAMING;
    case CachePolicy::persisting:
      return CU_ACCESS_PROPERTY_PERSISTING;
    case CachePolicy::normal:
      break;
  }
  return CU_ACCESS_PROPERTY_NORMAL;
}

}  // namespace

Result<unsigned> write_attributes(const LoadedKernel& kernel, const LaunchShape& shape,
                                  std::span<CUlaunchAttribute> attributes) {
  unsigned count = 0;
  const auto add = [&](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
    auto& attribute = attributes[count++];
    attribute = {};
    attribute.id = id;
    return attribute.value;
  };
  // The floor is a driver of CUDA 12.0, so only what came later is looked at.
  const int driver = kernel.library().driver().version();
  const auto needs = [&](int version, const char* what) -> Status {
    if (driver >= version) return {};
    return launch_error(kernel, ErrorCode::unsupported,
                        std::string(what) + " needs a driver for CUDA " +
                            cuda_version_text(version) + "; this one is for CUDA " +
                            cuda_version_text(driver));
  };

  if (shape.cluster_blocks != Extent{}) {
    const auto& cluster = shape.cluster_blocks;
    add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = {cluster.x, cluster.y, cluster.z};
  }
  if (shape.preferred_cluster_blocks != Extent{}) {
    if (auto status = needs(12080, "a preferred cluster"); !status) return status.error();
    const auto& cluster = shape.preferred_cluster_blocks;
    add(CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION).preferredClusterDim = {
        cluster.x, cluster.y, cluster.z};
  }
  if (shape.cluster_scheduling != ClusterScheduling::driver_default)
    add(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
        .clusterSchedulingPolicyPreference = shape.cluster_scheduling == ClusterScheduling::spread
                                                 ? CU_CLUSTER_SCHEDULING_POLICY_SPREAD
                                                 : CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
  if (shape.overlap_previous != Overlap::no)
    add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        .programmaticStreamSerializationAllowed = 1;
  if (shape.programmatic_event.event != nullptr)
    add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT).programmaticEvent = {
        shape.programmatic_event.event, 0, shape.programmatic_event.at_block_start ? 1 : 0};
  if (shape.launch_completion_event != nullptr) {
    if (auto status = needs(12030, "a launch-completion event"); !status) return status.error();
    // Member by member, here and below: a whole structure would bring its padding along.
    auto& completion = add(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT).launchCompletionEvent;
    completion.event = shape.launch_completion_event;
    completion.flags = 0;
  }
  if (shape.cooperative) add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
  if (shape.priority) add(CU_LAUNCH_ATTRIBUTE_PRIORITY).priority = *shape.priority;
  if (shape.memory_domain != MemoryDomain::stream_default)
    add(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN).memSyncDomain =
        shape.memory_domain == MemoryDomain::remote ? CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE
                                                    : CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
  if (const auto& window = shape.access_window; window.bytes > 0) {
    auto& policy = add(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW).accessPolicyWindow;
    policy.base_ptr = window.base;
    policy.num_bytes = window.bytes;
    policy.hitRatio = window.hit_ratio;
    policy.hitProp = property_of(window.hits);
    policy.missProp = property_of(window.misses);
  }
  if (shape.shared_carveout_percent) {
    if (auto status = needs(12050, "a shared memory carveout per launch"); !status)
      return status.error();
    add(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT).sharedMemCarveout =
        *shape.shared_carveout_percent;
  }
  return count;
}

}  // namespace kiln
