// The C++ runtime's state of exceptions in flight, per thread: what libhone has in place of libstdc++'s own two
// functions. Theirs reach their thread's variable through __tls_get_addr, which belongs to the dynamic linker and would
// be a second library that libhone needs; these use the static kind, 16 bytes. The layout is fixed by the Itanium C++
// ABI (2.2.2).
namespace {

struct EhGlobals {
  void* caught_exceptions;
  unsigned int uncaught_exceptions;
};

__attribute__((tls_model("initial-exec"))) thread_local EhGlobals eh_globals;

}  // namespace

extern "C" {
__attribute__((visibility("hidden"))) EhGlobals* __cxa_get_globals() { return &eh_globals; }
__attribute__((visibility("hidden"))) EhGlobals* __cxa_get_globals_fast() { return &eh_globals; }
}
