/** A machine without systemd: process, mount and network namespaces of its own, where a call is like process 1's. @module */
import { readFileSync } from "node:fs";
import { until } from "./netns.ts";

/** Programs that {@linkcode newMachineOfNamespaces} needs. */
export const MACHINE_PROGRAMS: readonly string[] = ["unshare", "nsenter", "setpriv", "mount", "ip"];

/** Ends with its scope, and all that runs there. */
export interface MachineOfNamespaces extends AsyncDisposable {
  /** Runs a script of the shell there, to the end of its standard streams. */
  run(script: string): { readonly exitCode: number; readonly stdout: string; readonly stderr: string };
}

/** /run and /etc/cni are empty there. Process 1 reaps orphans. */
const BOOT = `
  mount -t proc proc /proc
  for each in /run /etc/cni; do mkdir -p $each; mount -t tmpfs none $each; done
  mkdir -p /run/netns; ip link set lo up
  sleep infinity & wait
`;

export async function newMachineOfNamespaces(): Promise<MachineOfNamespaces> {
  const tied = ["setpriv", "--pdeathsig", "KILL"];
  const unshare = ["unshare", ..."-m -p -n --fork --kill-child --propagation private".split(" ")];
  const outer = Bun.spawn([...tied, ...unshare, "sh", "-ec", BOOT], { stdin: "ignore", stderr: "inherit" });
  const first = () => readFileSync(`/proc/${outer.pid}/task/${outer.pid}/children`, "utf8").trim();
  const run: MachineOfNamespaces["run"] = (script) => {
    const enter = ["nsenter", "-t", first(), "-m", "-p", "-n", "sh", "-ec", script];
    const env = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", CALLER: "1" };
    const { exitCode, stdout, stderr } = Bun.spawnSync(enter, { cwd: "/", env, stdin: "ignore", stderr: "pipe" });
    return { exitCode, stdout: stdout.toString(), stderr: stderr.toString() };
  };
  await until(() => first() !== "" && run("[ -d /run/netns ]").exitCode === 0);
  return {
    run,
    async [Symbol.asyncDispose]() {
      outer.kill("SIGKILL");
      await outer.exited;
    },
  };
}
