/**
 * The reference plugins and the compiled binary at work on hosts of their own or on one, and a picture of what they left there.
 *
 * @module
 */
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pluginLink, SERVER_ENV, testWith } from "./binary.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { findSysctl } from "../ffi/sys/sysctl.ts";
import type { JsonDocument } from "./json_document.ts";
import { type Namespaces, newNamespaces, newNetns, runInNetns } from "./netns.ts";
import { REFERENCE_VERSION } from "./reference.ts";

export const REFERENCE_DIRECTORY = "/usr/lib/cni";

/** Programs that the reference runs, and that the tests look with. */
const PROGRAMS = [join(REFERENCE_DIRECTORY, "bridge"), "iptables", "nft", "ip", "busybox"];

/** A test that needs the reference. */
export function comparisonTest(name: string, body: () => void | Promise<void>): void {
  testWith(PROGRAMS, name, body);
}

/** A side of the comparison. */
export interface PluginSet {
  readonly name: string;
  path(type: string): string;
}
/** The plugins of Debian's containernetworking-plugins. */
export const referencePlugins: PluginSet = { name: "the reference", path: (type) => join(REFERENCE_DIRECTORY, type) };
/** Links to the compiled binary. */
export const ourPlugins: PluginSet = { name: "this program", path: pluginLink };

/** The parameters of a call. */
export interface ComparisonCallOptions {
  /** The plugin, `bridge` unless told. */
  readonly type?: string;
  /** Whose IPAM plugin it delegates to; its own side's unless told. */
  readonly ipamFrom?: PluginSet;
  /** Other variables than usual; null takes one away. */
  readonly env?: Readonly<Record<string, string | null>>;
}

/** The answer of a plugin. */
export interface PluginOutcome {
  readonly succeeded: boolean;
  /** Its one JSON document; undefined if there is none. */
  readonly answer: JsonDocument;
}

/** A host and a container on which either side may work. */
export interface ComparisonHost extends Namespaces {
  readonly directory: string;
  newContainer(): Netns;
  /** Calls a plugin of one side; `$DIR` in the configuration is {@linkcode ComparisonHost.directory}. */
  tryCall(side: PluginSet, verb: string, config: object, options?: ComparisonCallOptions): PluginOutcome;
  /** The output of the plugin. @throws {Error} if it refused */
  call(side: PluginSet, verb: string, config: object, options?: ComparisonCallOptions): JsonDocument;
  /** The addresses that are reserved for network `net`. */
  reserved(): string[];
  /** The names of all links, those of ports as `PORT`. */
  links(): { host: string[]; container: string[] };
}

/** Makes a host, whose namespaces and files go with it. */
export function newComparisonHost(): ComparisonHost {
  const resources = new DisposableStack();
  const namespaces = resources.use(newNamespaces());
  const directory = mkdtempSync(join(tmpdir(), "cni-test-"));
  resources.defer(() => rmSync(directory, { recursive: true }));
  const { host, container } = namespaces;
  const ask: ComparisonHost["tryCall"] = (side, verb, config, { type = "bridge", ipamFrom = side, env = {} } = {}) => {
    const variables = Object.entries({
      PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
      // The firewalld of the machine that runs the tests is not to be told of their containers.
      DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/nonexistent/bus",
      CNI_COMMAND: verb,
      CNI_CONTAINERID: "c1",
      CNI_NETNS: container.path,
      CNI_IFNAME: "eth0",
      CNI_PATH: dirname(ipamFrom.path("host-local")),
      ...SERVER_ENV,
      ...env,
    }).filter(([, value]) => value !== null);
    const document = JSON.stringify({ cniVersion: REFERENCE_VERSION, name: "net", type, ...config });
    const { exitCode, stdout } = host.run(() =>
      Bun.spawnSync([side.path(type)], {
        cwd: "/",
        env: Object.fromEntries(variables),
        stdin: Buffer.from(document.replaceAll("$DIR", directory)),
        stderr: "ignore",
      })
    );
    return { succeeded: exitCode === 0, answer: findDocument(`${stdout}`) };
  };
  return {
    ...namespaces,
    directory,
    tryCall: ask,
    newContainer: () => resources.use(newNetns()),
    call(side, verb, ...rest) {
      const { succeeded, answer } = ask(side, verb, ...rest);
      if (!succeeded) throw new Error(`${side.name} refused ${verb}: ${JSON.stringify(answer)}`);
      return answer;
    },
    reserved() {
      const folder = join(directory, "net");
      return existsSync(folder) ? readdirSync(folder).filter((name) => /^[\da-f.:]+$/.test(name)).sort() : [];
    },
    links: () => ({ host: linkNames(host), container: linkNames(container) }),
    [Symbol.dispose]: () => resources.dispose(),
  };
}

function findDocument(text: string): JsonDocument {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const ipJson = (netns: Netns, args: string): JsonDocument[] =>
  JSON.parse(runInNetns(netns, "ip", "-j", ...args.split(" ")) || "[]");
const linkNames = (netns: Netns) =>
  ipJson(netns, "link").map(({ ifname }) => ifname.replace(/^veth[0-9a-f]{8}$/, "PORT")).sort();

/**
 * Keys that change by themselves or differ everywhere. Our IPv6 addresses are usable at once (`nodad`), the reference's wait or stay
 * `tentative`. We write a port's owner on it. The reference's ports have no queue length, which the kernel ignores there. Our
 * veths have one queue, the reference's as many as there are processors. A bridge's id is its MAC address again.
 */
const IGNORED_KEYS = /_timer$|^(tentative|nodad|ifalias|altnames|txqlen|num_[rt]x_queues|bridge_id|root_id)$/;

/** Everything that an ADD did, with names instead of what is random: compare two by {@linkcode listDifferences}. */
export function snapshotHost(
  { host, container, directory, reserved }: ComparisonHost,
  answer: JsonDocument,
): JsonDocument {
  const state = {
    answer,
    host: kernelState(host, ["ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/cni0/accept_ra"]),
    container: kernelState(container, ["ipv4/conf/eth0/arp_notify", "ipv6/conf/eth0/accept_dad"]),
    reserved: reserved(),
  };
  let text = JSON.stringify(state, (key, value) => IGNORED_KEYS.test(key) ? undefined : value)
    .replaceAll(container.path, "SANDBOX").replaceAll(directory, "DIR");
  for (const { ifname, address, broadcast } of [...state.container.links, ...state.host.links]) {
    // A requested address is left as it is, and so is the loopback's. One by chance may well begin with 0a:00 alone.
    if (!/^0a:00:00:00:00:|^00:00/.test(address) && address !== broadcast) {
      text = text.replaceAll(address, `MAC of ${ifname}`);
    }
  }
  return JSON.parse(text.replaceAll(/veth[0-9a-f]{8}/g, "PORT"));
}

function kernelState(netns: Netns, sysctls: readonly string[]): JsonDocument {
  // The kernel adds these once it has found an address to be unique, so they tell the time.
  const lasting = ({ dst, table }: JsonDocument) => table !== "local" && !/^(fe80|ff00)::/.test(dst);
  return {
    links: ipJson(netns, "-d addr").map(({ addr_info, ...link }) => ({
      ...link,
      addresses: addr_info.filter(({ scope }: JsonDocument) => scope !== "link"),
    })),
    routes: ipJson(netns, "route show table all").filter(lasting),
    sysctls: Object.fromEntries(
      sysctls.map((name) => [name, netns.run<string>(() => findSysctl(`net/${name}`) ?? "")]),
    ),
  };
}

/** `path: first | second` for everything that differs. */
export function listDifferences(first: JsonDocument, second: JsonDocument, path = ""): string[] {
  if (JSON.stringify(first) === JSON.stringify(second)) return [];
  if (![first, second].every((side) => side !== null && typeof side === "object")) {
    return [`${path}: ${JSON.stringify(first)} | ${JSON.stringify(second)}`];
  }
  return [...new Set([...Object.keys(first), ...Object.keys(second)])].sort()
    .flatMap((key) => listDifferences(first[key], second[key], path === "" ? key : `${path}.${key}`));
}
