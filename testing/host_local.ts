/**
 * A network of its own for tests of `host-local`: a directory, and the way every plugin is called. No namespace is needed.
 *
 * @module
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns.ts";
import hostLocal from "../plugins/host_local/plugin.ts";
import { serve } from "../plugins/lib/protocol/serve.ts";
import { CniError } from "../spec/error.ts";
import type { Result } from "../spec/result.ts";
import type { CniCommand } from "../spec/version.ts";

export interface HostLocalCallOptions {
  readonly id?: string;
  readonly ifname?: string;
  /** CNI_ARGS */
  readonly args?: string;
  /** Beside `ipam`: `runtimeConfig`, `prevResult`, `cniVersion`. */
  readonly config?: object;
  readonly ipam?: object;
  /** Of GC: when its list was made, in nanoseconds since 1970; now unless told. */
  readonly snapshotTime?: bigint;
}

/** A network called `net` with its files. */
export interface HostLocalNetwork extends Disposable {
  readonly dataDir: string;
  /** Where its files are, once there are any. */
  readonly directory: string;
  /** What the plugin said on stderr. */
  readonly log: string[];
  /** Calls the plugin; gives the document it printed, `{}` for none. @throws {CniError} what it answered with */
  call(verb: CniCommand, options?: HostLocalCallOptions): Result;
  /** The address, without prefix length, that an ADD gives. */
  add(id: string, options?: HostLocalCallOptions): string;
  /** Names and contents of the files that the reference plugin knows. */
  files(): Record<string, string>;
  /** Names of all files; of second names without this boot. */
  names(): string[];
}

/** Names of all files, sorted; of second names without this boot. */
export function listFileNames(directory: string): string[] {
  const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").slice(0, 8);
  return readdirSync(directory).map((name) => name.startsWith(".") ? name.replace(`:${boot}`, "") : name).sort();
}

/** A network with this `ipam`, in a new directory or one that another process made. */
export function newHostLocalNetwork(
  ipam: object,
  dataDir = mkdtempSync(join(tmpdir(), "cni-test-")),
): HostLocalNetwork {
  const directory = join(dataDir, "net");
  const log: string[] = [];
  const call: HostLocalNetwork["call"] = (verb, { id = "c1", ifname = "eth0", args = "", ...options } = {}) => {
    const env = { CNI_CONTAINERID: id, CNI_IFNAME: ifname, CNI_NETNS: "/netns", CNI_ARGS: args };
    const document = {
      cniVersion: "1.1.0",
      name: "net",
      type: "bridge",
      ipam: { type: "host-local", dataDir, ...ipam, ...options.ipam },
      ...options.config,
    };
    const { snapshotTime } = options;
    const request = {
      command: verb,
      env,
      stdin: JSON.stringify(document),
      ...snapshotTime !== undefined && { snapshotTime },
    };
    const { exitCode, stdout } = serve(hostLocal, request, {
      host: { identity: "host" } as Netns,
      openNetns: (path) => ({ path, identity: "container", [Symbol.dispose]() {} }) as Netns,
      invoker: () => ({
        invoke() {
          throw new Error("it calls no other plugin");
        },
      }),
      log: (message) => void log.push(message),
    });
    const answer = stdout === "" ? {} : JSON.parse(stdout);
    if (exitCode !== 0) throw new CniError(answer.code, answer.msg, { details: answer.details });
    return answer;
  };
  const names = () => listFileNames(directory);
  return {
    dataDir,
    directory,
    log,
    call,
    add: (id, options) => call("ADD", { ...options, id }).ips![0]!.address.split("/")[0]!,
    names,
    files: () =>
      Object.fromEntries(
        names().filter((name) => !name.startsWith(".")).map((
          name,
        ) => [name, readFileSync(join(directory, name), "utf8")]),
      ),
    [Symbol.dispose]: () => rmSync(dataDir, { recursive: true, force: true }),
  };
}
