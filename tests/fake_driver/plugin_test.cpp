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

}  // namespace
}  // namespace kiln::test
