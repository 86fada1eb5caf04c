/**
 * A network of its own for tests of `host-local`: a directory, and the way every plugin is called. No namespace is needed.
 *
 * @module
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import hostLocal from "../plugins/host_local/plugin.ts";
import type { Result } from "../spec/result.ts";
import type { CniCommand } from "../spec/version.ts";
import { invokePlugin, newHostContext, newRequest } from "./plugin_call.ts";

/** The parameters of a call. */
export interface HostLocalCallOptions {
  /** The value of CNI_CONTAINERID, `c1` unless told. */
  readonly id?: string;
  readonly ifname?: string;
  /** What CNI_ARGS is in the call. */
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
  /** The lines that the plugin logged. */
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

/** Makes a network with this `ipam`, in a new directory or one that another process made; it is removed with the network. */
export function newHostLocalNetwork(
  ipam: object,
  dataDir = mkdtempSync(join(tmpdir(), "cni-test-")),
): HostLocalNetwork {
  const directory = join(dataDir, "net");
  const log: string[] = [];
  const context = newHostContext({
    host: { identity: "host" } as Netns,
    openNetns: (path) => ({ path, identity: "container", [Symbol.dispose]() {} }) as Netns,
    log,
  });
  const call: HostLocalNetwork["call"] = (verb, options = {}) => {
    const { id: containerId = "c1", ifname = "eth0", args = "", snapshotTime } = options;
    const config = {
      type: "bridge",
      ipam: { type: "host-local", dataDir, ...ipam, ...options.ipam },
      ...options.config,
    };
    const request = newRequest("host-local", verb, config, {
      containerId,
      ifname,
      netns: "/netns",
      env: { CNI_ARGS: args },
      ...snapshotTime !== undefined && { snapshotTime },
    });
    return (invokePlugin(hostLocal, request, context) ?? {}) as Result;
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
