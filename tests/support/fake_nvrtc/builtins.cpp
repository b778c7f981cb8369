// The builtins that lie beside an NVRTC; this one has no use for any.
extern "C" int kiln_fake_nvrtc_builtins() {
  return 0;
}
