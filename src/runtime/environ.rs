//! The initial block of the environment: the kernel shows it to root, and to whoever may trace the process, as
//! `/proc/<pid>/environ`, whatever became of the variables since.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;

unsafe extern "C" {
    static environ: *const *mut libc::c_char;
}

/// Overwrites the values of these variables in the initial block. For this process and what it starts they keep their
/// values. To be called while the process has a single thread, and once for each name.
pub fn hide<'a>(names: impl IntoIterator<Item = &'a str>) {
    for name in names {
        let Some(value) = std::env::var_os(name) else { continue };
        overwrite(name);
        // SAFETY: there is no other thread that could read the environment (see above).
        unsafe { std::env::set_var(name, value) };
    }
}

/// Writes stars over every value of `name`.
fn overwrite(name: &str) {
    // SAFETY: `environ` is a list of C strings with a null pointer at its end, or null; they are writable (the
    // process's own stack, or heap) and nobody else touches them meanwhile.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            if let Some(value) = text.strip_prefix(name.as_bytes()).filter(|rest| rest.starts_with(b"=")) {
                let length = value.len() - 1;
                let start = (*entry).add(name.len() + 1);
                for at in 0..length {
                    start.add(at).write_volatile(b'*'.cast_signed());
                }
            }
            entry = entry.add(1);
        }
    }
}

/// Keeps other processes of the same user from reading this one's memory, descriptors and environment, and no core
/// file from being written (Linux; elsewhere it does nothing). A program executed later is free of it.
pub fn close_process() {
    #[cfg(target_os = "linux")]
    // SAFETY: sets a flag of this process.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// Whether a variable of this name holds a key or a token, as far as its name tells.
#[must_use]
pub fn is_secret_name(name: &std::ffi::OsStr) -> bool {
    let name = name.as_bytes().to_ascii_uppercase();
    let ends: [&[u8]; 9] = [
        b"_API_KEY",
        b"_APIKEY",
        b"_TOKEN",
        b"_SECRET",
        b"_SECRET_KEY",
        b"_PASSWORD",
        b"_PASSWD",
        b"_ACCESS_KEY",
        b"_PRIVATE_KEY",
    ];
    ends.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_say_secret() {
        for (name, secret) in [
            ("GITHUB_TOKEN", true),
            ("AWS_SECRET_ACCESS_KEY", true),
            ("npm_config_token", true),
            ("DB_PASSWORD", true),
            ("PATH", false),
            ("TOKENIZERS_PARALLELISM", false),
            ("SSH_AUTH_SOCK", false),
            ("KEY", false),
        ] {
            assert_eq!(is_secret_name(name.as_ref()), secret, "{name}");
        }
    }
}
