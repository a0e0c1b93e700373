//! Entry of the helper in test binaries, which have no `main` of their own.
#![expect(unsafe_code, reason = "a function that runs before main needs a linker section")]

/// Runs the helper before `main`, if the process was started as the helper.
// SAFETY: The section holds pointers to functions that the C runtime calls once, on the only thread, before `main`. The
// standard library has stored the arguments by then: its own entry has a higher priority.
#[used]
#[unsafe(link_section = ".init_array")]
static HELPER_ENTRY: extern "C" fn() = enter_helper;

extern "C" fn enter_helper() {
    crate::run_helper();
}
