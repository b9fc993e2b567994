// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compilation of a policy into seccomp filters, and their installation.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::policy::{Policies, Policy, Rule, When};
use super::{LayerState, SandboxRole, aarch64, x86_64};

/// Error of installing a filter.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilterError {
    #[error("no system call policy for {}; supported: x86_64, aarch64", std::env::consts::ARCH)]
    Architecture,
    #[error("compiling the system call policy: {0}")]
    Compile(#[from] BackendError),
    #[error("{0}")]
    Install(#[source] seccompiler::Error),
}

impl FilterError {
    /// Returns the state of the seccomp layer after this error.
    pub(super) fn state(&self) -> LayerState {
        match self {
            FilterError::Install(seccompiler::Error::Seccomp(error))
                if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) =>
            {
                LayerState::Refused
            }
            _ => LayerState::NotInKernel,
        }
    }
}

/// Threads to which a filter applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterScope {
    /// All threads of the process, and threads that they start.
    All,
    /// The calling thread, and threads that it starts.
    This,
}

/// Installs the seccomp filters of `role` for `threads`, permanently.
pub(super) fn install(role: SandboxRole<'_>, threads: FilterScope) -> Result<(), FilterError> {
    let (arch, policies) = of_this_machine().ok_or(FilterError::Architecture)?;
    let policy = match role {
        SandboxRole::Decode => policies.decode,
        SandboxRole::DecodeByDevice => policies.decode_by_device,
        SandboxRole::PluginLoading { .. } => policies.plugin_loading,
        SandboxRole::Plugin => policies.plugin,
        SandboxRole::Network { .. } => policies.network,
    };
    for program in programs(policy, arch, std::process::id())? {
        let installed = match threads {
            FilterScope::All => seccompiler::apply_filter_all_threads(&program),
            FilterScope::This => seccompiler::apply_filter(&program),
        };
        installed.map_err(FilterError::Install)?;
    }
    Ok(())
}

fn of_this_machine() -> Option<(TargetArch, Policies)> {
    match std::env::consts::ARCH {
        "x86_64" => Some((TargetArch::x86_64, x86_64::POLICIES)),
        "aarch64" => Some((TargetArch::aarch64, aarch64::POLICIES)),
        _ => None,
    }
}

/// Compiles the filters of `policy`, in the order of installation. The kernel runs both of them
/// for a call, and the strictest result counts. The first filter returns ENOSYS for calls that the
/// policy declares absent. The second filter returns EPERM for every call that the policy does not list,
/// or lists with a condition that the call's arguments do not meet. A call with the numbering of another
/// architecture ends the process.
fn programs(policy: Policy, arch: TargetArch, own_pid: u32) -> Result<[BpfProgram; 2], BackendError> {
    let mut absent = BTreeMap::new();
    let mut allowed = BTreeMap::new();
    for rule in merged(policy).into_values() {
        // An empty list of alternatives matches every call.
        let alternatives = match rule.when {
            When::Always => Vec::new(),
            When::Absent => {
                absent.insert(rule.number, Vec::new());
                Vec::new()
            }
            When::OneOf(argument, values) => values
                .iter()
                .map(|value| alternative(argument, SeccompCmpOp::Eq, u64::from(*value)))
                .collect::<Result<_, _>>()?,
            When::Bits(argument, mask, set) => {
                vec![alternative(argument, SeccompCmpOp::MaskedEq(u64::from(mask)), u64::from(set))?]
            }
            When::BitOrOneOf(argument, bit, values) => {
                let masked = SeccompCmpOp::MaskedEq(u64::from(bit));
                let with_bit = alternative(argument, masked, u64::from(bit));
                let one_of =
                    values.iter().map(|value| alternative(argument, SeccompCmpOp::Eq, u64::from(*value)));
                std::iter::once(with_bit).chain(one_of).collect::<Result<_, _>>()?
            }
            When::AnyOf(alternatives) => alternatives
                .iter()
                .map(|arguments| {
                    let condition = |&(argument, value): &(u8, u32)| {
                        let (width, operator) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
                        SeccompCondition::new(argument, width, operator, u64::from(value))
                    };
                    SeccompRule::new(arguments.iter().map(condition).collect::<Result<_, _>>()?)
                })
                .collect::<Result<_, _>>()?,
            When::OwnPid(argument) => vec![alternative(argument, SeccompCmpOp::Eq, u64::from(own_pid))?],
            When::Null(argument) => {
                let null = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
                vec![SeccompRule::new(vec![null])?]
            }
        };
        allowed.insert(rule.number, alternatives);
    }
    let compile = |rules, otherwise, matching| {
        SeccompFilter::new(rules, otherwise, matching, arch).and_then(BpfProgram::try_from)
    };
    Ok([
        compile(absent, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?,
        compile(allowed, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)?,
    ])
}

fn alternative(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?])
}

/// Returns one rule per system call number of `policy`: the rule in the last table that has the call.
fn merged(policy: Policy) -> BTreeMap<i64, Rule> {
    policy.tables.iter().copied().flatten().map(|rule| (rule.number, *rule)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHITECTURES: [(TargetArch, Policies); 2] =
        [(TargetArch::x86_64, x86_64::POLICIES), (TargetArch::aarch64, aarch64::POLICIES)];

    fn names(policy: Policy) -> Vec<&'static str> {
        merged(policy).values().map(|rule| rule.name).collect()
    }

    #[test]
    fn every_policy_compiles_on_every_architecture() {
        for (arch, policies) in ARCHITECTURES {
            for policy in [
                policies.decode,
                policies.decode_by_device,
                policies.plugin_loading,
                policies.plugin,
                policies.network,
            ] {
                let [absent, allowed] = programs(policy, arch, 1).unwrap();
                assert!(absent.len() > 3 && allowed.len() > names(policy).len(), "{arch:?}");
            }
        }
    }

    #[test]
    fn a_table_names_each_call_once() {
        for (arch, policies) in ARCHITECTURES {
            for table in policies.plugin_loading.tables {
                let mut numbers: Vec<_> = table.iter().map(|rule| rule.number).collect();
                numbers.sort_unstable();
                numbers.dedup();
                assert_eq!(numbers.len(), table.len(), "{arch:?}");
            }
        }
    }

    #[test]
    fn the_architectures_differ_only_in_calls_that_one_of_them_lacks() {
        let old = ["SYS_open", "SYS_poll", "SYS_time"];
        let of = |policy| {
            let mut names = names(policy);
            names.retain(|name| !old.contains(name));
            names.sort_unstable();
            names
        };
        let (x86, arm) = (x86_64::POLICIES, aarch64::POLICIES);
        assert_eq!(of(x86.decode), of(arm.decode));
        assert_eq!(of(x86.decode_by_device), of(arm.decode_by_device));
        assert_eq!(of(x86.plugin), of(arm.plugin));
        assert_eq!(of(x86.plugin_loading), of(arm.plugin_loading));
        assert_eq!(of(x86.network), of(arm.network));
    }

    #[test]
    fn sealing_a_plugin_allows_nothing_new() {
        for (arch, policies) in ARCHITECTURES {
            let loading = merged(policies.plugin_loading);
            for number in merged(policies.plugin).keys() {
                assert!(loading.contains_key(number), "{arch:?} {number}");
            }
        }
    }

    #[test]
    fn a_decoder_by_device_asks_nodes_and_nothing_else_is_new() {
        for (arch, policies) in ARCHITECTURES {
            let [plain, new] = policies.decode_by_device.tables else { panic!("{arch:?}") };
            assert_eq!(plain.len(), merged(policies.decode).len(), "{arch:?}");
            assert!(
                matches!(new, [Rule { name: "SYS_ioctl", when: When::OneOf(1, opcodes), .. }]
                    if opcodes.iter().all(|opcode| (opcode >> 8) & 0xff == u32::from(b'V'))),
                "{arch:?} {new:?}"
            );
        }
    }

    #[test]
    fn a_network_role_adds_calls_on_sockets_and_none_that_listens() {
        for (arch, policies) in ARCHITECTURES {
            let [plain, new] = policies.network.tables else { panic!("{arch:?}") };
            assert_eq!(plain.len(), merged(policies.decode).len(), "{arch:?}");
            let mut names: Vec<&str> = new.iter().map(|rule| rule.name).collect();
            names.sort_unstable();
            let expected = [
                "SYS_bind",
                "SYS_connect",
                "SYS_getpeername",
                "SYS_getsockname",
                "SYS_getsockopt",
                "SYS_sendto",
                "SYS_setsockopt",
                "SYS_socket",
            ];
            assert_eq!(names, expected, "{arch:?}");
            let socket = new.iter().find(|rule| rule.name == "SYS_socket").map(|rule| rule.when);
            assert!(matches!(socket, Some(When::AnyOf(_))), "{arch:?}");
        }
    }

    #[test]
    fn no_sealed_role_opens_executes_or_reaches_out() {
        let never = [
            "SYS_open",
            "SYS_openat",
            "SYS_openat2",
            "SYS_execve",
            "SYS_execveat",
            "SYS_fork",
            "SYS_vfork",
            "SYS_socket",
            "SYS_connect",
            "SYS_bind",
            "SYS_ptrace",
            "SYS_kill",
            "SYS_ioctl",
            "SYS_bpf",
            "SYS_seccomp",
            "SYS_unshare",
            "SYS_mount",
            "SYS_io_uring_setup",
            "SYS_userfaultfd",
        ];
        for (arch, policies) in ARCHITECTURES {
            for policy in [policies.decode, policies.plugin] {
                for name in names(policy) {
                    assert!(!never.contains(&name), "{arch:?} {name}");
                }
            }
        }
    }
}
