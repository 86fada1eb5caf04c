/**
 * The server of names in a process of its own, as `cni serve` starts it, in a namespace and on files of the test.
 *
 * @module
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { askNameServer } from "../plugins/dnsname/client.ts";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { testWith } from "./binary.ts";
import { type BridgeNetwork, newBridgeNetwork } from "./bridge_network.ts";
import { until } from "./netns.ts";

/** A server that runs until it is disposed of. */
export interface NameServerProcess extends Disposable {
  readonly pid: number;
  readonly log: () => string;
  readonly exited: Promise<number>;
  /** Ends it without notice, and waits for that. */
  kill(): Promise<void>;
  /** Ends it as the end of its supervisor does, and waits for that. @returns its exit status */
  end(): Promise<number>;
}

export interface NameServerPaths {
  readonly socket: string;
  readonly state: string;
  readonly resolvConf: string;
}

/** Those in a directory, and the keys of a plugin's configuration that lead there. */
export function nameServerPaths(directory: string): NameServerPaths & { readonly keys: object } {
  const [socket, state] = [join(directory, "names.sock"), join(directory, "records")];
  return {
    socket,
    state,
    resolvConf: join(directory, "resolv.conf"),
    keys: { daemonSocketPath: socket, dataDir: state },
  };
}

/** Files of a server, and a configuration of the plugin that leads there; they are removed with it. */
export interface NameSite extends Disposable {
  readonly directory: string;
  readonly paths: NameServerPaths;
  readonly config: object;
}

/** Makes one. @param resolvConf the content of that file */
export function newNameSite(resolvConf = ""): NameSite {
  const directory = mkdtempSync(join(tmpdir(), "cni-dnsname-"));
  const { keys, ...paths } = nameServerPaths(directory);
  writeFileSync(paths.resolvConf, resolvConf);
  return {
    directory,
    paths,
    config: { ...keys, domainName: "dns.test" },
    [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }),
  };
}

/** An upper bound for what is sure to happen, however much the machine has to do. */
const START_TIMEOUT_MS = 50_000;

const MODULES = ["plugins/dnsname/server/serve_names.ts", "ffi/sys/unix_socket.ts"];

/** The program: its lifetime is its standard input. */
const script = ({ socket, state, resolvConf }: NameServerPaths): string => {
  const [server, unixSocket] = MODULES.map((path) => JSON.stringify(join(REPOSITORY_ROOT, path)));
  return `const { serveNames } = await import(${server}); const { listenAt } = await import(${unixSocket});
    const { fd: listener } = listenAt(${JSON.stringify(socket)}); 
    serveNames({ listener, lifetime: 0, stateDirectory: ${JSON.stringify(state)}, resolvConf: ${
    JSON.stringify(resolvConf)
  }, log: console.error });`;
};

/** Starts it in the namespace, and waits until it serves. @param wrapper a command that ends by executing its arguments */
export function startNameServer(
  host: Netns,
  paths: NameServerPaths,
  wrapper: readonly string[] = [],
): NameServerProcess {
  rmSync(paths.socket, { force: true });
  const child = host.run(() => ({
    process: Bun.spawn([...wrapper, process.execPath, "-e", script(paths)], {
      stdin: "pipe",
      stdout: "ignore",
      stderr: "pipe",
    }),
  })).process;
  let log = "";
  (async () => {
    const decoder = new TextDecoder();
    for await (const chunk of child.stderr) log += decoder.decode(chunk);
  })();
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (!askNameServer(host, { daemonSocketPath: paths.socket, dataDir: paths.state }, { command: "look" })) {
    if (performance.now() > deadline) throw new Error("The server of names did not start");
    Bun.sleepSync(2);
  }
  return {
    pid: child.pid,
    exited: child.exited,
    log: () => log,
    async kill() {
      child.kill("SIGKILL");
      await child.exited;
    },
    async end() {
      child.stdin.end();
      return await child.exited;
    },
    [Symbol.dispose]: () => child.kill("SIGKILL"),
  };
}

/** Waits until the server has logged this. */
export async function untilLogged({ log }: NameServerProcess, text: string): Promise<void> {
  await until(() => log().includes(text));
}

/** A test in a network of its own that asks by dig(1). @param programs others that it needs @param timeoutMs that of the test runner unless told */
export function nameServerTest(
  name: string,
  body: (network: BridgeNetwork) => void | Promise<void>,
  programs: readonly string[] = [],
  timeoutMs?: number,
): void {
  testWith(["dig", "ip", "nft", ...programs], name, async () => {
    using resources = new DisposableStack();
    await body(newBridgeNetwork(resources));
  }, timeoutMs);
}

/** The same on a host whose server of names runs. */
export function servedNamesTest(
  name: string,
  body: (network: BridgeNetwork, site: NameSite) => void | Promise<void>,
  programs: readonly string[] = [],
): void {
  nameServerTest(name, async (network) => {
    using site = newNameSite();
    using _server = startNameServer(network.host, site.paths);
    await body(network, site);
  }, programs);
}

/** An answer as dig(1) shows it. */
export interface DigAnswer {
  /** `NOERROR` */
  readonly status: string;
  /** `qr aa rd ra` */
  readonly flags: string;
  /** The records of the answer: `web. 0 IN A 10.88.0.2`. */
  readonly answers: readonly string[];
}

/** Asks once. @returns `undefined` if nobody answers */
export function dig(netns: Netns, ...words: string[]): DigAnswer | undefined {
  const { stdout } = netns.run(() => Bun.spawnSync(["dig", "+tries=1", "+timeout=10", ...words], { stdin: "ignore" }));
  const text = stdout.toString();
  const status = /status: (\w+)/.exec(text)?.[1];
  if (status === undefined) return undefined;
  const section = /;; ANSWER SECTION:\n([^;]*?)\n(?:\n|$)/.exec(text)?.[1] ?? "";
  return {
    status,
    flags: /flags: ([a-z ]*)/.exec(text)?.[1] ?? "",
    answers: section.split("\n").filter((line) => line !== "").map((line) => line.replace(/\s+/g, " ")),
  };
}

/** The values of the answers alone, in order. */
export function digValues(netns: Netns, ...words: string[]): string[] {
  return (dig(netns, ...words)?.answers ?? []).map((line) => line.split(" ").slice(4).join(" ")).sort();
}
