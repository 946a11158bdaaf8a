//! fdatasync beside the work that goes on (DESIGN "Durability"): what a turn wrote reaches the disk while the request is
//! under way, so that it costs no latency.

use std::fs::File;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

enum Job {
    Sync(Vec<File>),
    /// All jobs before this one are done.
    Tell(Sender<()>),
}

/// A thread that syncs the files it is given, in order.
pub struct Syncer {
    sender: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name("sync".to_owned()).spawn(move || {
            while let Ok(job) = receiver.recv() {
                match job {
                    Job::Sync(files) => files.iter().for_each(|file| {
                        // A file system that cannot sync has said so at the write, or cannot be helped.
                        let _ = file.sync_data();
                    }),
                    Job::Tell(waiter) => drop(waiter.send(())),
                }
            }
        })?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    /// Asks for these files to be synced.
    pub fn sync(&self, files: Vec<File>) {
        if let Some(sender) = &self.sender {
            // The thread ends only after this sender is gone.
            let _ = sender.send(Job::Sync(files));
        }
    }

    /// Waits until all that was asked for so far is on the disk.
    pub fn wait(&self) {
        let (waiter, told) = mpsc::channel();
        if self.sender.as_ref().is_some_and(|sender| sender.send(Job::Tell(waiter)).is_ok()) {
            // An error: the thread is gone, and with it all that could be waited for.
            let _ = told.recv();
        }
    }
}

impl Drop for Syncer {
    /// Waits until all that was asked for is on the disk.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
