//! Capabilities that would reach around closed directories.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
};

/// Capabilities over mounts, the kernel, devices and other processes, and to open files by handle.
const WITHHELD_CAPABILITIES: [CapabilitySet; 10] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::SYS_MODULE,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYS_BOOT,
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::MKNOD,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::BPF,
    CapabilitySet::PERFMON,
    CapabilitySet::CHECKPOINT_RESTORE,
];

/// Gives up these capabilities, and the ability to gain any, for this process and the program that it executes.
pub(super) fn drop_privileges() -> io::Result<()> {
    let withheld = WITHHELD_CAPABILITIES.into_iter().fold(CapabilitySet::empty(), CapabilitySet::union);
    let held = capabilities(None)?;
    if held.permitted.contains(CapabilitySet::SETPCAP) {
        for capability in WITHHELD_CAPABILITIES {
            match remove_capability_from_bounding_set(capability) {
                // A kernel that does not know the capability.
                Err(rustix::io::Errno::INVAL) => {}
                removed => removed?,
            }
        }
    } else if held.permitted.intersects(withheld) {
        return Err(io::Error::other("the host has CAP_SYS_ADMIN or the like, but not CAP_SETPCAP"));
    }
    let without = |set: CapabilitySet| set.difference(withheld);
    let inheritable = without(held.inheritable);
    set_capabilities(
        None,
        CapabilitySets { effective: without(held.effective), permitted: without(held.permitted), inheritable },
    )?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}
