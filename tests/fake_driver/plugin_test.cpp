// Kiln in a plugin that is closed while the process goes on.
#include <dlfcn.h>

#include "fixture.hpp"

namespace kiln::test {
namespace {

using fake_driver::Object;

class Plugin : public FakeDriverFixture {};

// The driver calls Kiln when the graph goes.
TEST_F(Plugin, AGraphOutlivesThePluginThatCapturedIntoIt) {
  void* const plugin = ::dlopen(KILN_PLUGIN_PATH, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(plugin, nullptr) << ::dlerror();
  const auto launch =
      reinterpret_cast<bool (*)(CUstream, const char*)>(::dlsym(plugin, "kiln_plugin_launch"));
  ASSERT_NE(launch, nullptr) << ::dlerror();
  const auto stream = cuda_->stream(CU_STREAM_NON_BLOCKING);
  ASSERT_TRUE(launch(stream.handle(), cache_.c_str()));
  {
    const auto graph =
        cuda_->capture(stream, [&] { EXPECT_TRUE(launch(stream.handle(), cache_.c_str())); });
    EXPECT_EQ(::dlclose(plugin), 0);
    driver_.forget();
    graph.launch(stream);
    EXPECT_EQ(driver_.launches().size(), 1u);
  }
  EXPECT_EQ(driver_.live(Object::graph), 0u);
  // Its code is still there, and so is what it noted then.
  ASSERT_TRUE(launch(stream.handle(), cache_.c_str()));
  EXPECT_EQ(driver_.live(Object::library), 0u);
}

// What a sink writes to may be gone with the engine, and its code with the plugin.
TEST_F(Plugin, ALogSinkGoesWithItsRuntimeWhateverOutlivesThat) {
  const auto stream = cuda_->stream(CU_STREAM_NON_BLOCKING);
  const auto logger = std::make_shared<int>();
  auto own = options();
  own.log = [logger](LogLevel, std::string_view) { ++*logger; };
  Kernel kernel;
  TensorMapArray maps;
  {
    auto runtime = open(own);
    own.log = {};
    ASSERT_TRUE(runtime.add_source("a.cu", kWaitSource));
    const auto id = runtime.add(plain_spec("a.cu"));
    ASSERT_TRUE(id) << message_of(id);
    auto found = runtime.get(*id);
    auto array = runtime.tensor_map_array(1);
    ASSERT_TRUE(found && array) << message_of(found);
    kernel = *found;
    maps = *std::move(array);
  }
  EXPECT_EQ(logger.use_count(), 1);
  *logger = 0;
  driver_.fail("cuLibraryUnload", CUDA_ERROR_ILLEGAL_ADDRESS);
  kernel = {};
  driver_.fail("cuMemFree", CUDA_ERROR_ILLEGAL_ADDRESS);
  maps = {};
  EXPECT_EQ(*logger, 0);
}

}  // namespace
}  // namespace kiln::test
