import { ignoreErrors } from "../sys/error.ts";
import { sys } from "../sys/libc.ts";
import { openFile } from "../sys/file.ts";
import { findStat } from "../sys/stat.ts";
import { CLONE_NEWNET, CLONE_NEWNS, MS_REC, MS_SLAVE } from "../sys/uapi.ts";
import { createNetns, type Netns } from "./netns.ts";

// linux/sched.h
const CLONE_FS = 0x200;

/**
 * Runs `call` in a network namespace and with mounts that end with it; /run is empty there. Other threads stay on the
 * host, so what `call` starts must be done when it returns.
 */
export async function onScratchHost(call: (container: Netns) => Promise<void>): Promise<void> {
  using netns = openFile("/proc/thread-self/ns/net");
  using mounts = openFile("/proc/thread-self/ns/mnt");
  using root = openFile("/");
  sys.unshare(CLONE_NEWNS | CLONE_NEWNET);
  try {
    leaveChroot();
    // What the host unmounts goes here too: threads of the runtime stay here for long.
    sys.mount("none", "/", "none", MS_REC | MS_SLAVE, null);
    sys.mount("none", "/run", "tmpfs", 0, null);
    using container = createNetns();
    await call(container);
  } finally {
    enterMounts(mounts.fd);
    sys.fchdir(root.fd);
    sys.chroot(".");
    sys.setns(netns.fd, CLONE_NEWNET);
  }
}

/** The root becomes that of the mounts: only there they can all be made slaves. */
function leaveChroot(): void {
  using mounts = openFile("/proc/thread-self/ns/mnt");
  enterMounts(mounts.fd);
}

const MAX_ENTER_ATTEMPTS = 100;

/**
 * A thread that was just started shares this thread's working directory, which forbids a change of mounts.
 *
 * @throws {SystemError} `EINVAL` if the kernel forbids it for another reason
 */
function enterMounts(fd: number): void {
  const enter = () => {
    sys.unshare(CLONE_FS);
    return sys.setns(fd, CLONE_NEWNS);
  };
  for (let attempt = 1; attempt < MAX_ENTER_ATTEMPTS; attempt++) {
    if (ignoreErrors(["EINVAL"], enter) !== undefined) return;
  }
  enter();
}

/**
 * Enters the mounts of process 1, as a container that serves its host needs: engines' paths are the host's. Only before
 * this process has other threads.
 *
 * @returns whether they are others
 */
export function enterHostMounts(): boolean {
  const [own, host] = ["self", "1"].map((pid) =>
    // Not even root may look at process 1 in some sandboxes.
    ignoreErrors(["EACCES"], () => findStat(`/proc/${pid}/ns/mnt`)?.identity)
  );
  if (host === undefined || own === host) return false;
  using mounts = openFile("/proc/1/ns/mnt");
  sys.setns(mounts.fd, CLONE_NEWNS);
  return true;
}
