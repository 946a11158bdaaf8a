//! The seccomp filter: which system calls the mode closes, and with which arguments. They fail with EACCES.
//!
//! scripts/lib/sandbox.sh makes the same program for bubblewrap where the binary is not there; the test below compares
//! the two byte by byte, for every mode and machine. So the numbers of the calls are written here for each machine, and
//! a second test holds those of the machine at hand against libc's.

use std::collections::BTreeMap;
use std::io;

use seccompiler::SeccompCmpOp::{self, Eq, MaskedEq, Ne};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    sock_filter,
};

use crate::policy::mode::{Access, Mode, Scope};

/// The number of a call on x86_64, and in the list that aarch64 and riscv64 share.
struct Call(i64, i64);

impl Call {
    const fn on(&self, arch: TargetArch) -> i64 {
        if matches!(arch, TargetArch::x86_64) { self.0 } else { self.1 }
    }
}

const SOCKET: Call = Call(41, 198);
const CONNECT: Call = Call(42, 203);
const SENDTO: Call = Call(44, 206);
const SENDMSG: Call = Call(46, 211);
const SENDMMSG: Call = Call(307, 269);
const LISTEN: Call = Call(50, 201);
const IO_URING_SETUP: Call = Call(425, 425);

/// Calls that reach past any sandbox of files, closed unless the mode gives the whole system.
const SYSTEM_CALLS: &[Call] = &[
    Call(175, 105), // init_module
    Call(313, 273), // finit_module
    Call(176, 106), // delete_module
    Call(246, 104), // kexec_load
    Call(320, 294), // kexec_file_load
    Call(169, 142), // reboot
    Call(167, 224), // swapon
    Call(168, 225), // swapoff
    Call(163, 89),  // acct
    Call(164, 170), // settimeofday
    Call(227, 112), // clock_settime
    Call(170, 161), // sethostname
    Call(171, 162), // setdomainname
    Call(321, 280), // bpf
    Call(304, 265), // open_by_handle_at
    Call(308, 268), // setns
    Call(248, 217), // add_key
    Call(249, 218), // request_key
    Call(250, 219), // keyctl
];

/// `iopl` and `ioperm`, which other machines do not have.
const PORT_CALLS: [i64; 2] = [172, 173];

/// The program for a mode, on this machine.
pub(super) fn filter(mode: Mode) -> io::Result<BpfProgram> {
    filter_on(std::env::consts::ARCH.try_into().map_err(io::Error::other)?, mode)
}

/// A program as the kernel and bubblewrap read it.
pub(super) fn bytes(program: &[sock_filter]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for step in program {
        bytes.extend_from_slice(&step.code.to_ne_bytes());
        bytes.extend_from_slice(&[step.jt, step.jf]);
        bytes.extend_from_slice(&step.k.to_ne_bytes());
    }
    bytes
}

fn filter_on(arch: TargetArch, mode: Mode) -> io::Result<BpfProgram> {
    let [read, write, listen] =
        [Access::Read, Access::Write, Access::Execute].map(|access| mode.permits(Scope::Network, access));
    let mut calls: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut close = |call: Call, rules| calls.insert(call.on(arch), rules);
    let services = is_open_to_services(mode);
    if !(read && write && listen && services) {
        // Its rings make sockets, connect and listen without the calls that are looked at here.
        close(IO_URING_SETUP, Vec::new());
    }
    if !(read || write || listen) {
        // socketpair stays: it leads nowhere.
        close(SOCKET, Vec::new());
    } else if !services || !(read || write) {
        let mut closed = Vec::new();
        if !services {
            closed.push(when(&[(0, Eq, libc::AF_UNIX)])?);
        }
        if !(read || write) {
            closed.extend(without_connection()?);
        }
        close(SOCKET, closed);
    }
    if !(read || write) {
        close(CONNECT, Vec::new());
        // TCP Fast Open connects by sending.
        let fast_open = MaskedEq(u64::from(libc::MSG_FASTOPEN.cast_unsigned()));
        for (call, flags) in [(SENDTO, 3), (SENDMSG, 2), (SENDMMSG, 3)] {
            close(call, vec![when(&[(flags, fast_open.clone(), libc::MSG_FASTOPEN)])?]);
        }
    }
    if !listen {
        close(LISTEN, Vec::new());
    }
    if !mode.permits(Scope::System, Access::Execute) {
        calls.extend(SYSTEM_CALLS.iter().map(|call| (call.on(arch), Vec::new())));
        if arch == TargetArch::x86_64 {
            calls.extend(PORT_CALLS.map(|call| (call, Vec::new())));
        }
    }
    compile(arch, calls)
}

/// Whether Unix sockets are open. What listens on them acts with rights of its own (the user's systemd runs any program
/// outside every sandbox, docker's is root's), and neither Landlock nor seccomp sees which one is called.
fn is_open_to_services(mode: Mode) -> bool {
    mode.permits(Scope::External, Access::Write) && mode.permits(Scope::External, Access::Execute)
}

/// Sockets that could send to an address without a connect: all but TCP, Unix streams and the kernel's own.
fn without_connection() -> io::Result<Vec<SeccompRule>> {
    let (own, kind) = ((0, Ne, libc::AF_NETLINK), MaskedEq(0xf));
    let mut rules = Vec::new();
    // Every kind but SOCK_STREAM, which is 1 (socket(2)).
    for other in [2, 3, 4, 5, 6, 10] {
        rules.push(when(&[own.clone(), (1, kind.clone(), other)])?);
    }
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    rules.push(when(&families.map(|family| (0, Ne, family)))?);
    rules.push(when(&[own, (2, Ne, 0), (2, Ne, libc::IPPROTO_TCP)])?);
    Ok(rules)
}

/// A rule that holds when all of these do: number of the argument, comparison, value.
fn when(conditions: &[(u8, SeccompCmpOp, libc::c_int)]) -> io::Result<SeccompRule> {
    let conditions = conditions.iter().map(|(argument, compare, value)| {
        let value = u64::from(value.cast_unsigned());
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, compare.clone(), value)
    });
    let conditions = conditions.collect::<Result<_, _>>().map_err(io::Error::other)?;
    SeccompRule::new(conditions).map_err(io::Error::other)
}

fn compile(arch: TargetArch, calls: BTreeMap<i64, Vec<SeccompRule>>) -> io::Result<BpfProgram> {
    let refuse = SeccompAction::Errno(libc::EACCES.cast_unsigned());
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, refuse, arch).map_err(io::Error::other)?;
    let mut program = if arch == TargetArch::x86_64 { without_x32() } else { Vec::new() };
    program.extend(BpfProgram::try_from(filter).map_err(io::Error::other)?);
    Ok(program)
}

/// x86_64 has a second set of numbers for the same calls (x32), which the rules do not name: all of it is closed.
fn without_x32() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    // The call's number is the first field of `seccomp_data`.
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let below = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    vec![
        sock_filter { code: load, jt: 0, jf: 0, k: 0 },
        sock_filter { code: below, jt: 0, jf: 1, k: X32 },
        sock_filter { code: answer, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned() },
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::process::Command;

    use super::*;

    /// Every mode that makes a filter of its own: `socket`, `listen` and the rest look at no other digits.
    fn modes() -> impl Iterator<Item = String> {
        let system = [0, 1, 4];
        let external = [0, 2, 5, 6, 7];
        system.into_iter().flat_map(move |system| {
            external
                .into_iter()
                .flat_map(move |external| (0..8).map(move |network| format!("{system}{external}{network}7")))
        })
    }

    #[test]
    fn the_scripts_make_the_same_filter() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/lib/sandbox.sh");
        for (name, arch) in [
            ("x86_64", TargetArch::x86_64),
            ("aarch64", TargetArch::aarch64),
            ("riscv64", TargetArch::riscv64),
        ] {
            let make = r#". "$0" && machine=$1 && shift && for mode; do seccomp_filter "$machine" "$mode" || exit; done"#;
            let output =
                Command::new("bash").args(["-uc", make, script, name]).args(modes()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let mut rest = output.stdout.as_slice();
            for mode in modes() {
                let ours = bytes(&filter_on(arch, Mode::parse(&mode)).unwrap());
                let (theirs, after) = rest.split_at(ours.len().min(rest.len()));
                assert_eq!(theirs, ours, "{name}, mode {mode}");
                rest = after;
            }
            assert!(rest.is_empty(), "{name}: {} bytes too many", rest.len());
        }
    }

    #[test]
    fn a_machine_without_a_list_gets_no_filter() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/lib/sandbox.sh");
        let make = r#". "$0" && seccomp_filter i686 0467"#;
        let output = Command::new("bash").args(["-uc", make, script]).output().unwrap();
        assert!(!output.status.success());
        assert!(output.stdout.is_empty());
    }

    #[test]
    fn the_numbers_of_the_calls_are_those_of_this_machine() {
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let named = [
            (SOCKET, libc::SYS_socket),
            (CONNECT, libc::SYS_connect),
            (SENDTO, libc::SYS_sendto),
            (SENDMSG, libc::SYS_sendmsg),
            (SENDMMSG, libc::SYS_sendmmsg),
            (LISTEN, libc::SYS_listen),
            (IO_URING_SETUP, libc::SYS_io_uring_setup),
        ];
        for (call, number) in named {
            assert_eq!(call.on(arch), number);
        }
        let system: Vec<_> = SYSTEM_CALLS.iter().map(|call| call.on(arch)).collect();
        assert_eq!(
            system,
            [
                libc::SYS_init_module,
                libc::SYS_finit_module,
                libc::SYS_delete_module,
                libc::SYS_kexec_load,
                #[cfg(not(target_arch = "riscv64"))]
                libc::SYS_kexec_file_load,
                #[cfg(target_arch = "riscv64")]
                294,
                libc::SYS_reboot,
                libc::SYS_swapon,
                libc::SYS_swapoff,
                libc::SYS_acct,
                libc::SYS_settimeofday,
                libc::SYS_clock_settime,
                libc::SYS_sethostname,
                libc::SYS_setdomainname,
                libc::SYS_bpf,
                libc::SYS_open_by_handle_at,
                libc::SYS_setns,
                libc::SYS_add_key,
                libc::SYS_request_key,
                libc::SYS_keyctl,
            ]
        );
        #[cfg(target_arch = "x86_64")]
        assert_eq!(PORT_CALLS, [libc::SYS_iopl, libc::SYS_ioperm]);
    }
}
