//! Tests of the kernel sandbox through the Bash tool: what must not happen does not, and everyday work does.

use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use serde_json::json;

use super::testing::World;
use crate::policy::{Cage, Confinement, Mode};

/// What stands outside and must neither change nor be seen.
struct Guarded {
    world: World,
    outside: PathBuf,
    fifo: std::fs::File,
}

const KEY: &str = "KEY-MATERIAL";

impl Guarded {
    /// `None` where the kernel has no Landlock: then there is nothing to test.
    fn new(mode: &str) -> Option<Self> {
        if !Confinement::Required.holds() {
            println!("skipped: {}", Confinement::Required.describe());
            return None;
        }
        let mut world = World::new();
        world.ctx.mode = Mode::parse(mode);
        world.ctx.confinement = Confinement::Required;
        let home = world.ctx.home.clone().unwrap();
        for (dir, file) in [(".ssh", "id_ed25519"), (".aws", "credentials"), (".config/gh", "hosts.yml")] {
            std::fs::create_dir_all(home.join(dir)).unwrap();
            std::fs::write(home.join(dir).join(file), KEY).unwrap();
        }
        std::fs::write(home.join("notes"), "a note").unwrap();
        std::fs::write(world.ctx.base_dir.join("config.toml"), KEY).unwrap();
        for file in ["conversation.jsonl", "events.jsonl", "notify.buf"] {
            std::fs::write(world.ctx.session_dir.join(file), KEY).unwrap();
        }
        std::fs::write(world.ctx.session_dir.join("plan.md"), "the plan").unwrap();
        let fifo = world.ctx.session_dir.join("input.fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let fifo = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(fifo)
            .unwrap();
        let outside = world.root().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("old"), "old").unwrap();
        world.put("f", "inside\n");
        symlink(&outside, world.path("out")).unwrap();
        symlink(home.join(".ssh/id_ed25519"), world.path("innocent")).unwrap();
        Some(Self { world, outside, fifo })
    }

    /// Runs a command and returns what it printed, with the names of the places in its variables.
    fn run(&self, command: &str) -> String {
        let ctx = &self.world.ctx;
        let command = format!(
            "HOME='{}' S='{}' O='{}' AGENT={} PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin\nexport HOME S O\n{command}",
            ctx.home.clone().unwrap().display(),
            ctx.session_dir.display(),
            self.outside.display(),
            std::process::id(),
        );
        super::bash::unjudged(&self.world.ctx, &command).content
    }

    /// Everything outside is as it was.
    fn check(&self, command: &str, output: &str) {
        use std::io::Read as _;
        assert!(!output.contains(KEY), "{command}: {output}");
        let names: Vec<_> =
            std::fs::read_dir(&self.outside).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(names, ["old"], "{command}: {output}");
        assert_eq!(std::fs::read(self.outside.join("old")).unwrap(), b"old", "{command}: {output}");
        for file in ["conversation.jsonl", "events.jsonl", "notify.buf"] {
            let content = std::fs::read_to_string(self.world.ctx.session_dir.join(file)).unwrap();
            assert_eq!(content, KEY, "{command}: {file}");
        }
        let home = self.world.ctx.home.clone().unwrap();
        assert_eq!(std::fs::read_dir(home.join(".ssh")).unwrap().count(), 1, "{command}");
        assert_eq!(std::fs::read_to_string(self.world.ctx.base_dir.join("config.toml")).unwrap(), KEY);
        assert_eq!(
            std::fs::read_dir(self.world.ctx.base_dir.join("projects")).unwrap().count(),
            1,
            "{command}"
        );
        let read = (&self.fifo).read(&mut [0; 64]);
        assert_eq!(read.map_err(|e| e.kind()), Err(std::io::ErrorKind::WouldBlock), "{command}: the FIFO");
    }
}

/// Ways out of the workspace, whatever the spelling: CASES O1–O11 and P3 as the kernel sees them.
#[test]
fn no_spelling_gets_out_of_the_workspace() {
    let Some(guarded) = Guarded::new("0467") else { return };
    for command in [
        // Writing outside.
        "echo x > $O/new",
        "echo x >> $O/old",
        "echo x >| $O/old",
        "echo x 2> $O/new >&2",
        "echo x &> $O/new",
        ": <> $O/new",
        "cat f && rm $O/old",
        "cat f; rm -f $O/old",
        "cat f | tee $O/new",
        "cp f $O/new",
        "mv f $O/new; mv $O/old .",
        "dd if=f of=$O/new",
        "truncate -s 0 $O/old",
        "install f $O/new",
        "mkdir $O/new",
        "mkfifo $O/new",
        "mknod $O/new c 1 3",
        "ln $O/old hard && echo x > hard",
        "ln f $O/new",
        "ln -s f $O/new",
        "ln -sf $O/old l && echo x > l",
        "echo x > out/new",
        "echo x > ../outside/new",
        "echo x > /proc/self/root$O/new",
        "echo x > /proc/self/cwd/../outside/new",
        "cd $O && echo x > new",
        "exec 9<$O && echo x > /proc/self/fd/9/new",
        "r\\m $O/old",
        "r''m $O/old",
        "$'\\162m' $O/old",
        "{rm,$O/old}",
        "x=rm; $x $O/old",
        "eval 'rm $O/old'",
        "sh -c \"rm $O/old\"",
        "env rm $O/old",
        "timeout 5 rm $O/old",
        "nice rm $O/old",
        "command rm $O/old",
        "setsid rm $O/old",
        "setsid -f rm $O/old; sleep 0.2",
        "nohup rm $O/old",
        "echo $(rm $O/old)",
        "echo `rm $O/old`",
        "cat <(rm $O/old)",
        "echo ${x:-$(rm $O/old)}",
        "cat <<E\n$(rm $O/old)\nE",
        "find $O -type f -delete",
        "find $O -type f -exec rm {} +",
        "find . -maxdepth 0 -fprint $O/new",
        "echo $O/old | xargs rm",
        "echo \"rm $O/old\" > s; sh s",
        "echo cm0gLWYgJE8vb2xkCg== | base64 -d | sh",
        "printf 'int main(int c,char**v){return remove(v[1]);}' > r.c && cc -o r r.c && ./r $O/old",
        "python3 -c \"import os; os.remove('$O/old')\"",
        "python3 -c \"import os; os.rename('f', '$O/new')\"",
        "perl -e \"unlink '$O/old'\"",
        "awk \"BEGIN { print 1 > \\\"$O/new\\\" }\"",
        "sed -i s/old/new/ $O/old",
        "sed -n \"w $O/new\" f",
        "git init -q $O/new",
        "tar cf $O/new f",
        "(rm $O/old) & wait",
        "bash -c 'bash -c \"rm $O/old\"'",
        "unshare -r rm $O/old",
        "unshare -rm sh -c \"mount -t tmpfs t $O && touch $O/new\"",
        "mount --bind . $O",
        "chroot / rm $O/old",
        "nsenter -t 1 -m rm $O/old",
        "echo '* * * * * rm '$O/old | crontab -",
        "echo \"rm $O/old\" | at now",
        "echo \"rm $O/old\" >> ~/.bashrc; . ~/.bashrc",
        "mknod d b 8 0 && echo made > $O/new",
        // The agent's own files.
        "printf '*1\\r\\n$11\\r\\nSESSION_END\\r\\n' > $S/input.fifo",
        "timeout 1 dd if=f of=$S/input.fifo oflag=nonblock",
        "python3 -c \"import os; os.write(os.open('$S/input.fifo', os.O_WRONLY|os.O_NONBLOCK), b'x')\"",
        "echo x >> $S/events.jsonl",
        "echo x > $S/conversation.jsonl",
        "rm $S/notify.buf",
        "mv $S ./mine",
        "mkdir -p ~/.bash-agent/projects/x",
        "echo 'mode = \"7777\"' > ~/.bash-agent/config.toml",
        "rm -rf ~/.bash-agent",
        "echo x > ~/.ssh/authorized_keys",
        "ln -s $S s && echo x > s/events.jsonl",
        "ln $S/events.jsonl e && echo x > e",
        // Reading what is closed.
        "cat ~/.ssh/id_ed25519",
        "cat innocent",
        "cp ~/.ssh/id_ed25519 . && cat id_ed25519",
        "ln ~/.ssh/id_ed25519 hard && cat hard",
        "mv ~/.ssh ./mine && cat mine/*",
        "tar c ~/.ssh ~/.aws 2>/dev/null | cat",
        "cat ~/.config/gh/hosts.yml ~/.aws/credentials",
        "cat /proc/self/root$HOME/.ssh/id_ed25519",
        "cd ~/.ssh && cat id_ed25519",
        "cat $S/conversation.jsonl ~/.bash-agent/config.toml",
        "grep -r . ~/.ssh ~/.bash-agent",
        "read l < ~/.ssh/id_ed25519; echo $l",
        "python3 -c \"print(open('$HOME/.ssh/id_ed25519').read())\"",
    ] {
        let output = guarded.run(command);
        guarded.check(command, &output);
        guarded.world.put("f", "inside\n");
    }
}

#[test]
fn the_systems_own_files_are_closed() {
    let Some(guarded) = Guarded::new("0467") else { return };
    for command in [
        "cat /etc/shadow",
        "cat /proc/self/root/etc/shadow",
        "head -c 10 /dev/sda /dev/vda /dev/mem",
        "cat /proc/$AGENT/environ | tr '\\0' '\\n' | grep -a PATH",
        "cat /proc/$AGENT/maps",
        "readlink /proc/$AGENT/fd/0",
        "cat /proc/$AGENT/fd/0",
        "cat /proc/$AGENT/root/etc/shadow",
        "echo 1 > /proc/sys/vm/drop_caches",
        "echo x > /dev/kmsg",
        "touch /etc/new /var/new /usr/new /new",
        "ls /var/log /etc/ssh",
    ] {
        let output = guarded.run(&format!("({command}) && echo DONE"));
        assert!(output.starts_with("Error: exit code"), "{command}: {output}");
    }
    assert!(!std::path::Path::new("/etc/new").exists());
}

#[test]
fn a_command_cannot_signal_or_trace_the_agent() {
    let Some(guarded) = Guarded::new("0467") else { return };
    assert!(guarded.run("kill -0 $AGENT").contains("Operation not permitted"));
    assert!(guarded.run("kill -0 $PPID").contains("Operation not permitted"));
    assert_eq!(guarded.run("sleep 300 & kill $! && wait $!; echo $?"), "143");
}

#[test]
fn the_network_digit_is_kept() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let connect = format!(
        "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port})); print('yes')\""
    );
    let listen = "python3 -c \"import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); print('yes')\"";
    let unix = "python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); print('yes')\"";
    let netlink = "python3 -c \"import socket; s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); print('yes')\"";
    let pair = "python3 -c \"import socket; socket.socketpair(); print('yes')\"";
    for (mode, allowed) in [
        ("0407", [false, false, false, false, true]),
        ("0467", [true, false, false, true, true]),
        ("0447", [true, false, false, true, true]),
        ("0417", [false, true, false, true, true]),
        ("0477", [true, true, false, true, true]),
        ("0777", [true, true, true, true, true]),
    ] {
        let Some(guarded) = Guarded::new(mode) else { return };
        for (command, allowed) in [&connect[..], listen, unix, netlink, pair].iter().zip(allowed) {
            let output = guarded.run(command);
            assert_eq!(output == "yes", allowed, "{mode} {command}: {output}");
        }
        let bash = guarded.run(&format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo yes"));
        assert_eq!(bash == "yes", allowed[0], "{mode}: {bash}");
    }
}

#[test]
fn every_digit_opens_what_it_says() {
    let write = "echo x > new && cat new";
    for (mode, command, works) in [
        ("0444", "cat f", true),
        ("0444", write, false),
        ("0444", "echo x > $TMPDIR/new", false),
        ("0444", "echo x > $S/plan.draft", false),
        ("0467", write, true),
        ("0467", "echo x > $TMPDIR/new && cat $TMPDIR/new", true),
        ("0467", "echo x > $S/plan.draft && cat $S/plan.draft $S/plan.md", true),
        ("0467", "cat $O/old ~/notes", true),
        ("0067", "cat $O/old", false),
        ("0067", "cat ~/notes", false),
        ("0067", write, true),
        ("0067", "ls / || ls $O", false),
        ("0400", "cat f", false),
        ("0400", "cat $O/old", true),
        ("0000", "cat f", false),
        ("0000", "ls", false),
        ("0000", "echo out; git --version", true),
        ("0667", "echo x > $O/new && rm $O/new", true),
        ("0667", "echo x > ~/.ssh/new", false),
        ("4467", "ls /var/lib && cat ~/.ssh/id_ed25519", true),
        ("4467", "echo x > ~/.ssh/new", false),
        ("6667", "echo x > ~/.ssh/new && rm ~/.ssh/new", true),
        ("7777", "echo x > $S/events.jsonl", false),
        ("7777", "echo x > ~/.bash-agent/config.toml", false),
        ("7777", write, true),
    ] {
        let Some(guarded) = Guarded::new(mode) else { return };
        let output = guarded.run(command);
        assert_eq!(!output.starts_with("Error: "), works, "{mode} {command}: {output}");
    }
}

/// A working directory that holds what is closed.
#[test]
fn at_home_the_keys_and_the_agents_files_stay_closed() {
    let Some(mut guarded) = Guarded::new("0467") else { return };
    let home = guarded.world.ctx.home.clone().unwrap();
    std::fs::create_dir(home.join("src")).unwrap();
    guarded.world.ctx.cwd = home;
    for command in [
        "cat .ssh/id_ed25519 .bash-agent/config.toml",
        "echo x > .ssh/new",
        "echo x >> $S/events.jsonl",
        "rm -rf .ssh .bash-agent",
        "mv .ssh src/",
        "ln .ssh/id_ed25519 src/k; cat src/k",
    ] {
        let output = guarded.run(command);
        guarded.check(command, &output);
    }
    assert_eq!(guarded.run("echo x > src/new && cat src/new notes"), "x\na note");
    assert_eq!(guarded.run("echo d > $S/plan.draft && cat $S/plan.draft $S/plan.md"), "d\nthe plan");
    assert_eq!(std::fs::read(&guarded.world.ctx.plan_draft).unwrap(), b"d\n");
    if guarded.run("touch new && mkdir dir && mv new dir && rm -r dir && echo made") != "made" {
        println!("no mounts here: nothing new can be made right in the home");
    }
    assert!(
        guarded.run("umount ~/.bash-agent; umount -l ~/.ssh; cat ~/.ssh/id_ed25519").starts_with("Error")
    );
}

#[test]
fn a_file_opened_to_all_is_still_closed_by_the_sandbox() {
    let Some(guarded) = Guarded::new("0467") else { return };
    let key = guarded.world.ctx.home.clone().unwrap().join(".ssh/id_ed25519");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o666)).unwrap();
    let output = guarded.run("cat ~/.ssh/id_ed25519");
    guarded.check("cat", &output);
}

/// Where the kernel has no Landlock: the same grants, by bubblewrap.
#[test]
fn bubblewrap_holds_the_files_too() {
    let Some(mut guarded) = Guarded::new("0467") else { return };
    let mut run = |cwd: Option<PathBuf>, mode: &str, command: &str| {
        let ctx = &mut guarded.world.ctx;
        ctx.cwd = cwd.unwrap_or_else(|| ctx.cwd.clone());
        let places = super::place::Ground::new(ctx).places;
        let cage = Cage::new(Confinement::Bubblewrap, Mode::parse(mode), &places).ok()?;
        let mut wrapped = cage.command("bash", || Ok(()));
        wrapped.args(["-c", command]).stdin(std::process::Stdio::null());
        wrapped.env("HOME", ctx.home.clone().unwrap()).env("S", &ctx.session_dir).env("O", &guarded.outside);
        let output = wrapped.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    };
    let home = run(None, "0467", "echo $HOME").map(|(_, home)| PathBuf::from(home.trim()));
    let Some(home) = home else {
        println!("skipped: no bubblewrap");
        return;
    };
    let at_home = [None, Some(home)];
    for (at, mode, command, works) in [
        (0, "0467", "cat f && echo x > new && rm new && gcc --version", true),
        (0, "0467", "echo d > $S/plan.draft && cat $S/plan.draft $S/plan.md", true),
        (0, "0467", "cat $O/old ~/notes", true),
        (0, "0467", "echo x > $O/new", false),
        (0, "0467", "cat ~/.ssh/id_ed25519", false),
        (0, "0467", "cat $S/events.jsonl", false),
        (0, "0467", "cat /etc/shadow", false),
        (0, "0067", "cat $O/old", false),
        (0, "0444", "echo x > new", false),
        (0, "0407", "exec 3<>/dev/tcp/127.0.0.1/22", false),
        (1, "0467", "touch new && rm new && cat notes && echo d > $S/plan.draft", true),
        (1, "0467", "cat .ssh/id_ed25519", false),
        (1, "0467", "echo x > .ssh/new", false),
        (1, "0467", "echo x > .bash-agent/config.toml", false),
        (1, "0467", "cat $S/events.jsonl", false),
    ] {
        let (success, output) = run(at_home[at].clone(), mode, command).unwrap();
        assert_eq!(success, works, "{mode} {command}: {output}");
        assert!(!output.contains(KEY), "{mode} {command}: {output}");
    }
    guarded.check("bubblewrap", "");
}

/// Twenty things that people do all day, in the default mode.
#[test]
fn everyday_work_works_in_the_default_mode() {
    let Some(mut guarded) = Guarded::new("0467") else { return };
    // The real home: compilers live there.
    guarded.world.ctx.home = std::env::var_os("HOME").map(PathBuf::from);
    let has = |program: &str| {
        std::process::Command::new("sh")
            .args(["-c", &format!("command -v {program} >/dev/null")])
            .status()
            .unwrap()
            .success()
    };
    let setup = "git config --local user.email a@b.c; git config --local user.name n;";
    for (needs, command) in [
        ("ls", "ls -la && pwd && id -un"),
        ("find", "find . -name f -newer /usr/bin/env -o -type f | sort | head"),
        ("grep", "grep -rn inside . | wc -l"),
        ("sed", "printf 'a\\nb\\n' > t && sed -i s/a/c/ t && grep c t"),
        ("awk", "awk '{ print $1 }' f | sort | uniq -c"),
        ("mktemp", "t=$(mktemp) && echo x > $t && rm $t && d=$(mktemp -d) && rmdir $d"),
        ("diff", "diff <(echo a) <(echo a) && cat <<< here && ulimit -n"),
        ("tar", "tar czf a.tgz f && mkdir x && tar xzf a.tgz -C x && cat x/f"),
        ("git", "git init -q . && cat .git/HEAD"),
        ("git", &format!("{setup} git add f && git commit -qm one && git log --oneline")),
        (
            "git",
            "git checkout -qb b && echo more >> f && git commit -qam two && git checkout -q - && git merge -q b",
        ),
        (
            "git",
            "echo dirty >> f && git stash -q && git stash pop -q && git diff --stat && git checkout -q f",
        ),
        (
            "git",
            "git clone -q . clone && git -C clone status --short && git worktree add -q wt && rm -rf clone",
        ),
        (
            "cc",
            "printf '#include <stdio.h>\\nint main(void){puts(\"built\");}' > m.c && cc -O1 -o m m.c && ./m",
        ),
        ("make", "printf 'all: t2\\nt2: m.c\\n\\tcp m.c t2\\n' > Makefile && make -s -j2 && test -f t2"),
        (
            "python3",
            "printf 'import unittest\\nclass T(unittest.TestCase):\\n  def test(self): pass\\n' > test_x.py && python3 -m unittest -q test_x",
        ),
        (
            "python3",
            "python3 -c 'import subprocess, tempfile, json; print(subprocess.check_output([\"echo\", \"sub\"]), tempfile.mkdtemp())'",
        ),
        (
            "node",
            "node -e 'require(\"fs\").writeFileSync(\"n\", \"x\"); console.log(require(\"os\").cpus().length)'",
        ),
        ("perl", "perl -e 'open my $f, \">\", \"p\"; print $f 1; close $f; print -s \"p\"'"),
        (
            "cargo",
            "cargo init -q --vcs none --name tiny tiny && cd tiny && cargo build -q --offline && cargo test -q --offline && ./target/debug/tiny",
        ),
        (
            "go",
            "mkdir g && cd g && go mod init g && printf 'package main\\nfunc main(){println(1)}' > m.go && GOCACHE=$TMPDIR/go GOFLAGS=-mod=mod go run .",
        ),
        ("jq", "echo '{\"a\":1}' | jq .a"),
        ("sqlite3", "sqlite3 db 'create table t(x); insert into t values (1); select * from t'"),
        ("ps", "ps -e | wc -l && nproc && uname -a && date && df . && free"),
        ("curl", "curl --version && sleep 0 | cat && true | tee t3 && xargs -n1 echo < f"),
    ] {
        if !has(needs) {
            println!("skipped, no {needs}: {command}");
            continue;
        }
        let output = guarded.world.run("Bash", json!({"command":format!("set -e\n{command}"),"timeout":50}));
        assert!(!output.is_error, "{command}: {}", output.content);
        let bad = ["ermission denied", "ot permitted"].iter().any(|word| output.content.contains(word));
        assert!(!bad, "{command}: {}", output.content);
    }
}
