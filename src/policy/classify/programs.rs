//! What known programs do with their arguments.

use std::path::{Path, PathBuf};

use super::arguments::{described, listed, parse};
use super::words::Word;
use super::{Access, Judge, State, is_runtime};

/// Do nothing to files by themselves.
const HARMLESS: &str = "\
    echo true false : test [ pwd type which whereis hash help jobs wait bg fg disown \
    umask ulimit set shopt shift return exit break continue let times local cal sleep seq yes basename \
    dirname realpath readlink expr bc dc factor numfmt uname whoami id groups hostname uptime nproc arch \
    tty printenv locale getconf tput clear reset ps pgrep pstree top free w who users man info apropos \
    whatis lscpu lsblk lsusb lspci ss netstat getent logname date mktemp caller dirs compgen complete \
    bind stty sync tr logger lsmod unset suspend vmstat iostat mesg ldconfig";

/// Read every operand. A letter after the name's colon is an option that takes a value.
const READERS: &str = "\
    cat head:nc tail:nc less more wc nl:bdfhilnsvw tac:s rev cut:bcdf paste:d join:12aeijtov comm fold:w \
    fmt:wp pr expand:t unexpand:t column:sotcN od:AjNStw xxd:cglos hexdump:nes hd:nes strings:nte \
    file:fFmP stat:cf ls:IwT dir vdir tree:LPIH du:dtB df:tx md5sum sha1sum sha224sum sha256sum \
    sha384sum sha512sum b2sum:l cksum sum diff:ULWIFxXSp cmp:in zcat bzcat xzcat zstdcat zless base64:w \
    base32:w nm objdump:djMm readelf ldd size lsattr getfacl tsort ptx look cloc tokei bat:lr eza exa \
    lsof:pui jq";

/// Write every operand; the last column holds the options that take a value.
const WRITERS: &str = "\
    touch:drt mkdir:m rm rmdir unlink truncate:sr shred:nsu mkfifo:m tee gzip:S gunzip:S bzip2 bunzip2 \
    xz:T unxz:T zstd:T unzstd dos2unix unix2dos chattr rename mknod:m fallocate:lo setfacl:mxMX";

/// Change the machine, other users or what runs later.
const SYSTEM: &str = "\
    mount umount fdisk parted mkfs mkswap swapon swapoff useradd userdel usermod groupadd passwd \
    chpasswd visudo iptables ip6tables nft ufw reboot shutdown halt poweroff init telinit insmod \
    modprobe rmmod chroot nsenter crontab at batch systemctl service update-rc.d sysctl dmesg losetup \
    cryptsetup lvm setcap chsh hostnamectl timedatectl loginctl journalctl docker podman kubectl lxc \
    virsh systemd-run bpftrace kexec";

/// Talk to the network: reading only, or both ways.
const ASKERS: &str = "ping ping6 dig host nslookup traceroute tracepath mtr whois";
const TALKERS: &str = "\
    ssh scp sftp telnet ftp lftp mosh gh glab aws gcloud az ssh-copy-id";

/// Judges one simple command.
pub(super) fn judge(judge: &mut Judge<'_>, words: &[Word], state: &mut State) {
    let Some(first) = words.first() else { return };
    if !first.known || first.text.is_empty() {
        return judge.unknown("the program is not known");
    }
    let arguments = &words[1..];
    if state.functions.contains(&first.text) {
        // Its body was judged where it was defined.
        return;
    }
    let mut name = first.text.as_str();
    if name.contains('/') {
        let path = state.cwd.as_deref().unwrap_or(Path::new("/")).join(name);
        let real = (judge.view.resolve)(&path);
        if !is_runtime(&real) && !is_runtime(&path) {
            judge.path(first, Access::Read, state);
            return judge.executes("runs a program of its own", state);
        }
        name = name.rsplit('/').next().unwrap_or(name);
    }
    if matches!(arguments, [only] if only.known && matches!(only.text.as_str(), "--version" | "--help" | "-V"))
        && !is_shell(name)
    {
        return;
    }
    Program { judge, arguments, state }.named(name);
}

fn is_shell(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" | "mksh" | "fish" | "rbash")
}

/// One program's name is known; these are its arguments.
pub(super) struct Program<'j, 'v, 's> {
    pub(super) judge: &'j mut Judge<'v>,
    pub(super) arguments: &'s [Word],
    pub(super) state: &'s mut State,
}

impl Program<'_, '_, '_> {
    fn named(mut self, name: &str) {
        match name {
            "cd" | "pushd" | "popd" => self.change_directory(),
            "eval" | "trap" | "alias" => self.evaluates(name),
            "." | "source" => {
                self.read_all(self.arguments.get(..1).unwrap_or_default());
                self.judge.executes("runs a file's commands", self.state);
            }
            "read" | "mapfile" | "readarray" | "getopts" | "printf" => self.forgets(),
            _ if is_shell(name) => self.shell(),
            _ if self.wrapper(name) || self.table(name) || self.special(name) => {}
            _ => self.judge.executes("runs code", self.state),
        }
    }

    pub(super) fn read_all(&mut self, words: &[Word]) {
        for word in words.iter().filter(|word| word.text != "-" || !word.known) {
            self.judge.path(word, Access::Read, self.state);
        }
    }

    pub(super) fn write_all(&mut self, words: &[Word]) {
        for word in words.iter().filter(|word| word.text != "-" || !word.known) {
            self.judge.path(word, Access::Write, self.state);
        }
    }

    /// The working directory itself.
    pub(super) fn here(&mut self, access: Access) {
        self.judge.path(&Word::known("."), access, self.state);
    }

    pub(super) fn inner(&mut self, words: &[Word]) {
        judge(self.judge, words, self.state);
    }

    pub(super) fn change_directory(&mut self) {
        let operand = self
            .arguments
            .iter()
            .find(|word| !(word.known && word.text.starts_with('-') && word.text.len() > 1));
        let target = match operand {
            None => self.judge.view.places.home.clone(),
            Some(word) if word.known && word.text != "-" && word.known_directory() == Some(&word.text) => {
                self.state
                    .cwd
                    .as_ref()
                    .map(|cwd| cwd.join(&word.text))
                    .or_else(|| Some(PathBuf::from(&word.text)).filter(|path| path.is_absolute()))
            }
            Some(_) => None,
        };
        let target = target.map(|path| (self.judge.view.resolve)(&path));
        // In a branch that may not be taken it is either of two.
        let certain = !self.state.conditional || target == self.state.cwd;
        self.state.cwd = target.filter(|_| certain);
        if self.state.cwd.is_none() {
            self.judge.unknown("goes to a directory that is not known");
        }
    }

    /// `eval`, `trap`, `alias`: text that is run as commands, now or later.
    fn evaluates(&mut self, name: &str) {
        let texts: Vec<&Word> = match name {
            "eval" => self.arguments.iter().collect(),
            "trap" => self.arguments.iter().filter(|word| !word.text.starts_with('-')).take(1).collect(),
            _ => self.arguments.iter().filter(|word| word.text.contains('=')).collect(),
        };
        if name == "trap" && self.arguments.first().is_some_and(|word| word.known && word.text == "-") {
            return;
        }
        if texts.iter().any(|word| !word.known) {
            return self.judge.unknown("runs what is not known");
        }
        if name == "alias" {
            for word in texts {
                let text = word.text.split_once('=').map_or("", |(_, value)| value).to_owned();
                self.judge.command_text(&text, &mut self.state.clone());
            }
        } else {
            let text = texts.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
            self.judge.command_text(&text, self.state);
        }
    }

    /// Variables that get what is read, or printed (`printf -v`).
    fn forgets(&mut self) {
        for word in self.arguments {
            self.state.variables.insert(word.text.clone(), None);
        }
    }

    /// `sh -c TEXT` is its text; anything else is a script.
    fn shell(&mut self) {
        let parsed = parse(self.arguments, "oO", "rcfile init-file");
        if !parsed.has("c") {
            self.read_all(parsed.operands.get(..1).unwrap_or_default());
            return self.judge.executes("runs a script", self.state);
        }
        match parsed.operands.first() {
            Some(text) if text.known => {
                // $0, $1 … are what follows; variables that were not exported are not there.
                let mut state = State {
                    variables: Default::default(),
                    functions: Default::default(),
                    ..self.state.clone()
                };
                self.judge.command_text(&text.text, &mut state);
            }
            _ => self.judge.unknown("runs what is not known"),
        }
    }

    /// Programs that run another one, whose words follow theirs.
    fn wrapper(&mut self, name: &str) -> bool {
        // Options that take a value, and the operands that come before the program.
        let (values, operands) = match name {
            "timeout" => ("ks", 1),
            "nice" => ("n", 0),
            "ionice" => ("cnp", 0),
            "chrt" | "taskset" => ("p", 1),
            "stdbuf" => ("ioe", 0),
            "flock" => ("wE", 1),
            "time" => ("fo", 0),
            "exec" => ("a", 0),
            "nohup" | "setsid" | "builtin" | "coproc" | "unbuffer" | "busybox" | "toybox" | "not"
            | "catchsegv" => ("", 0),
            "watch" => ("nd", 0),
            "command" => {
                if self.arguments.iter().any(|word| matches!(word.text.as_str(), "-v" | "-V")) {
                    return true;
                }
                ("", 0)
            }
            "sudo" | "doas" | "su" | "pkexec" | "runuser" => {
                self.judge.system("acts as another user");
                ("ugpCDhRTrt", 0)
            }
            "env" => return self.env(),
            "xargs" | "parallel" => return self.xargs(),
            "script" | "unshare" | "setpriv" | "proot" | "fakeroot" => {
                self.judge.executes("runs another program", self.state);
                return true;
            }
            _ => return false,
        };
        let mut rest = self.arguments;
        while let Some(word) = rest.first() {
            let text = word.text.as_str();
            if !text.starts_with('-') || !word.known || text == "-" {
                break;
            }
            rest = &rest[1..];
            if text == "--" {
                break;
            }
            let takes = text.len() == 2 && values.contains(&text[1..]);
            rest = rest.get(usize::from(takes)..).unwrap_or_default();
        }
        let rest = rest.get(operands..).unwrap_or_default();
        if !rest.is_empty() {
            self.inner(rest);
        }
        true
    }

    fn env(&mut self) -> bool {
        let mut rest = self.arguments;
        while let Some(word) = rest.first() {
            let text = word.text.as_str();
            if !word.known && !text.contains('=') {
                break;
            }
            if let Some((name, _)) = text.split_once('=').filter(|_| !text.starts_with('-')) {
                self.judge.dangerous_variable(name);
            } else if matches!(text, "-u" | "-C" | "--unset" | "--chdir") {
                rest = rest.get(1..).unwrap_or_default();
                if matches!(text, "-C" | "--chdir") {
                    self.judge.unknown("runs elsewhere");
                }
            } else if text.starts_with("-S") || text.starts_with("--split-string") {
                self.judge.unknown("runs what is not known");
                return true;
            } else if !text.starts_with('-') {
                break;
            }
            rest = rest.get(1..).unwrap_or_default();
        }
        if !rest.is_empty() {
            self.inner(rest);
        }
        true
    }

    /// The program with operands that nobody knows.
    fn xargs(&mut self) -> bool {
        let mut rest = self.arguments;
        while let Some(word) = rest.first().filter(|word| word.text.starts_with('-') && word.known) {
            let takes =
                matches!(word.text.as_str(), "-n" | "-P" | "-I" | "-d" | "-L" | "-s" | "-a" | "-E" | "-j");
            if let (true, Some(file)) = (word.text == "-a", rest.get(1)) {
                self.judge.path(file, Access::Read, self.state);
            }
            rest = rest.get(1 + usize::from(takes)..).unwrap_or_default();
        }
        if !rest.is_empty() {
            let words = [rest, &[Word::unknown()]].concat();
            self.inner(&words);
        }
        true
    }

    /// Programs that a line of a table describes.
    fn table(&mut self, name: &str) -> bool {
        if listed(HARMLESS, name) {
            return true;
        }
        if let Some(values) = described(READERS, name) {
            let parsed = parse(self.arguments, values, "lines bytes color width ignore exclude");
            let skip = usize::from(name == "jq" && !parsed.has("f from-file"));
            let operands = parsed.operands.get(skip..).unwrap_or_default();
            self.read_all(operands);
            if operands.is_empty()
                && matches!(name, "ls" | "dir" | "vdir" | "tree" | "du" | "eza" | "exa" | "cloc" | "tokei")
            {
                self.here(Access::Read);
            }
            return true;
        }
        if let Some(values) = described(WRITERS, name) {
            let parsed = parse(self.arguments, values, "mode size reference date");
            let to_stdout =
                parsed.has("c stdout to-stdout") && !matches!(name, "touch" | "truncate" | "mkdir");
            if to_stdout && name != "rm" {
                self.read_all(&parsed.operands)
            } else {
                self.write_all(&parsed.operands)
            }
            return true;
        }
        if listed(SYSTEM, name) || name.starts_with("mkfs.") {
            self.judge.system("works on the machine");
            return true;
        }
        if listed(ASKERS, name) {
            self.judge.network(Access::Read, "asks the network");
            return true;
        }
        if listed(TALKERS, name) {
            self.judge.network(Access::Read, "uses the network");
            self.judge.network(Access::Write, "uses the network");
            return true;
        }
        false
    }

    /// Programs with rules of their own.
    fn special(&mut self, name: &str) -> bool {
        match name {
            "cp" | "mv" | "ln" | "install" => self.copies(name),
            "dd" => self.dd(),
            "chmod" | "chown" | "chgrp" => {
                let parsed = parse(self.arguments, "", "");
                let skip = usize::from(!parsed.has("reference"));
                self.write_all(parsed.operands.get(skip..).unwrap_or_default());
            }
            "grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack" | "zgrep" => self.grep(name),
            "sed" => self.sed(),
            "awk" | "gawk" | "mawk" | "nawk" => self.awk(),
            "find" | "fd" | "fdfind" => self.find(name),
            "sort" => {
                let parsed = parse(self.arguments, "okSTt", "output key field-separator temporary-directory");
                self.read_all(&parsed.operands);
                for output in parsed.values("o output") {
                    self.judge.path(&output, Access::Write, self.state);
                }
                if parsed.has("compress-program") {
                    self.judge.executes("runs another program", self.state);
                }
            }
            "uniq" => {
                let parsed = parse(self.arguments, "fsw", "");
                self.read_all(parsed.operands.get(..1).unwrap_or_default());
                self.write_all(parsed.operands.get(1..).unwrap_or_default());
            }
            "split" | "csplit" => {
                let parsed = parse(self.arguments, "abClnfk", "");
                self.read_all(parsed.operands.get(..1).unwrap_or_default());
                self.here(Access::Write);
                self.write_all(parsed.operands.get(1..).unwrap_or_default());
                if parsed.has("filter") {
                    self.judge.executes("runs another program", self.state);
                }
            }
            "patch" => {
                let parsed = parse(self.arguments, "pdiorBFY", "");
                for input in parsed.values("i input") {
                    self.judge.path(&input, Access::Read, self.state);
                }
                self.here(Access::Write);
                self.write_all(&parsed.operands);
            }
            "tar" | "bsdtar" => self.tar(),
            "zip" => {
                let parsed = parse(self.arguments, "", "");
                self.write_all(parsed.operands.get(..1).unwrap_or_default());
                self.read_all(parsed.operands.get(1..).unwrap_or_default());
            }
            "unzip" => {
                let parsed = parse(self.arguments, "dx", "");
                self.read_all(parsed.operands.get(..1).unwrap_or_default());
                if !parsed.has("l p t v z") {
                    match parsed.values("d").first() {
                        Some(dir) => self.judge.path(dir, Access::Write, self.state),
                        None => self.here(Access::Write),
                    }
                }
            }
            "curl" => self.curl(),
            "wget" => self.wget(),
            "nc" | "ncat" | "netcat" | "socat" => {
                let listens = self.arguments.iter().any(|word| {
                    word.text.contains("LISTEN") || (word.text.starts_with('-') && word.text.contains('l'))
                });
                self.judge.network(Access::Read, "uses the network");
                self.judge.network(Access::Write, "uses the network");
                if listens {
                    self.judge.network(Access::Execute, "listens");
                }
            }
            "rsync" => self.rsync(),
            "git" => self.git(),
            "apt" | "apt-get" | "dnf" | "yum" | "zypper" | "pacman" | "apk" | "snap" | "brew" | "dpkg"
            | "rpm" => {
                self.packages();
            }
            "npm" | "yarn" | "pnpm" | "pip" | "pip3" | "cargo" | "go" | "gem" | "bundle" | "composer"
            | "uv" | "poetry" => {
                self.builder();
            }
            _ => return false,
        }
        true
    }
}
