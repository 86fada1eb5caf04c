/**
 * The reference plugins and the compiled binary at work on hosts of their own or on one, and a picture of what they left there.
 *
 * @module
 */
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pluginLink, testWith } from "./binary.ts";
import { createNetns, type Netns } from "../ffi/netns.ts";
import { findSysctl } from "../ffi/sysctl.ts";
import { inNetns, type Namespaces, newNamespaces } from "./netns.ts";

const REFERENCE = "/usr/lib/cni";

/** Newest version that Debian's reference plugins speak. */
export const NEWEST = "1.0.0";

/** What the reference runs, and what the tests look with. */
const PROGRAMS = [join(REFERENCE, "bridge"), "iptables", "nft", "ip", "busybox"];

/** A test that needs the reference. */
export function peerTest(name: string, body: () => void | Promise<void>): void {
  testWith(PROGRAMS, name, body);
}

/** Whose plugins are called. */
export interface Side {
  readonly name: string;
  path(type: string): string;
}
export const theirs: Side = { name: "the reference", path: (type) => join(REFERENCE, type) };
export const ours: Side = { name: "this program", path: pluginLink };

// deno-lint-ignore no-explicit-any -- what plugins and ip(8) print
export type Json = any;

export interface CallOptions {
  /** The plugin, `bridge` unless told. */
  readonly type?: string;
  /** Whose IPAM plugin it delegates to; its own side's unless told. */
  readonly ipamOf?: Side;
  /** Other variables than usual; null takes one away. */
  readonly env?: Readonly<Record<string, string | null>>;
}

/** What a plugin said. */
export interface Verdict {
  readonly ok: boolean;
  /** Its one JSON document; undefined if there is none. */
  readonly answer: Json;
}

/** A host and a container on which either side may work. */
export interface World extends Namespaces {
  readonly directory: string;
  newContainer(): Netns;
  /** Calls a plugin of one side; `$DIR` in the configuration is {@linkcode World.directory}. */
  ask(side: Side, verb: string, config: object, options?: CallOptions): Verdict;
  /** What the plugin printed. @throws {Error} if it refused */
  call(side: Side, verb: string, config: object, options?: CallOptions): Json;
  /** The addresses that are reserved for network `net`. */
  reserved(): string[];
  /** The names of all links, those of ports as `PORT`. */
  links(): { host: string[]; container: string[] };
}

export function newWorld(): World {
  const resources = new DisposableStack();
  const namespaces = resources.use(newNamespaces());
  const directory = mkdtempSync(join(tmpdir(), "cni-test-"));
  resources.defer(() => rmSync(directory, { recursive: true }));
  const { host, container } = namespaces;
  const ask: World["ask"] = (side, verb, config, { type = "bridge", ipamOf = side, env = {} } = {}) => {
    const variables = Object.entries({
      PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
      // Whoever tests with a firewalld has a bus of its own; the machine's is none of theirs.
      DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/nonexistent/bus",
      CNI_COMMAND: verb,
      CNI_CONTAINERID: "c1",
      CNI_NETNS: container.path,
      CNI_IFNAME: "eth0",
      CNI_PATH: dirname(ipamOf.path("host-local")),
      ...env,
    }).filter(([, value]) => value !== null);
    const document = JSON.stringify({ cniVersion: NEWEST, name: "net", type, ...config });
    const { exitCode, stdout } = host.run(() =>
      Bun.spawnSync([side.path(type)], {
        cwd: "/",
        env: Object.fromEntries(variables),
        stdin: Buffer.from(document.replaceAll("$DIR", directory)),
        stderr: "ignore",
      })
    );
    return { ok: exitCode === 0, answer: findDocument(`${stdout}`) };
  };
  return {
    ...namespaces,
    directory,
    ask,
    newContainer: () => resources.use(createNetns()),
    call(side, verb, ...rest) {
      const { ok, answer } = ask(side, verb, ...rest);
      if (!ok) throw new Error(`${side.name} refused ${verb}: ${JSON.stringify(answer)}`);
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

function findDocument(text: string): Json {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const shown = (netns: Netns, args: string): Json[] =>
  JSON.parse(inNetns(netns, "ip", "-j", ...args.split(" ")) || "[]");
const linkNames = (netns: Netns) =>
  shown(netns, "link").map(({ ifname }) => ifname.replace(/^veth[0-9a-f]{8}$/, "PORT")).sort();

/**
 * What changes by itself or differs everywhere: IPv6 addresses of ours are usable at once (`nodad`) where the reference waits or leaves
 * them `tentative`; ours writes on a port whose it is; a port of the reference has no queue length, which the kernel does not use there;
 * a bridge's id is its MAC address again.
 */
const PASSED_OVER = /_timer$|^(tentative|nodad|ifalias|txqlen|bridge_id|root_id)$/;

/** Everything that an ADD did, with names instead of what is random: compare two by {@linkcode differences}. */
export function picture({ host, container, directory, reserved }: World, answer: Json): Json {
  const state = {
    answer,
    host: kernelState(host, ["ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/cni0/accept_ra"]),
    container: kernelState(container, ["ipv4/conf/eth0/arp_notify", "ipv6/conf/eth0/accept_dad"]),
    reserved: reserved(),
  };
  let text = JSON.stringify(state, (key, value) => PASSED_OVER.test(key) ? undefined : value)
    .replaceAll(container.path, "SANDBOX").replaceAll(directory, "DIR");
  for (const { ifname, address, broadcast } of [...state.container.links, ...state.host.links]) {
    // A requested address is left as it is, and so is the loopback's. One by chance may well begin with 0a:00 alone.
    if (!/^0a:00:00:00:00:|^00:00/.test(address) && address !== broadcast) {
      text = text.replaceAll(address, `MAC of ${ifname}`);
    }
  }
  return JSON.parse(text.replaceAll(/veth[0-9a-f]{8}/g, "PORT"));
}

function kernelState(netns: Netns, sysctls: readonly string[]): Json {
  // The kernel adds these once it has found an address to be unique, so they tell the time.
  const lasting = ({ dst, table }: Json) => table !== "local" && !/^(fe80|ff00)::/.test(dst);
  return {
    links: shown(netns, "-d addr").map(({ addr_info, ...link }) => ({
      ...link,
      addresses: addr_info.filter(({ scope }: Json) => scope !== "link"),
    })),
    routes: shown(netns, "route show table all").filter(lasting),
    sysctls: Object.fromEntries(
      sysctls.map((name) => [name, netns.run<string>(() => findSysctl(`net/${name}`) ?? "")]),
    ),
  };
}

/** `path: first | second` for everything that differs. */
export function differences(first: Json, second: Json, path = ""): string[] {
  if (JSON.stringify(first) === JSON.stringify(second)) return [];
  if (![first, second].every((each) => each !== null && typeof each === "object")) {
    return [`${path}: ${JSON.stringify(first)} | ${JSON.stringify(second)}`];
  }
  return [...new Set([...Object.keys(first), ...Object.keys(second)])].sort()
    .flatMap((key) => differences(first[key], second[key], path === "" ? key : `${path}.${key}`));
}
