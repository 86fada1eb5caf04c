import { REFERENCE_DIRECTORY } from "../../../testing/reference_host.ts";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { Caller, execInvocation, type Invocation, runInvocation, type Verb } from "../harness/invocation.ts";
import { bridgePlugin, type Container, hostLocal, type Network, PORTMAP } from "../harness/networks.ts";
import { runSuccessfully } from "../harness/process.ts";
import { CNI_PROGRAM, newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";

/** The reference plugins, where Debian's package puts them. */

/** What a section measures with; what it makes goes with the scope. */
export type BenchWorkspace = ReturnType<typeof prepareBench> & { readonly scope: DisposableStack };

export function compileEmptyProgram(outfile: string): void {
  const script = (path: string) => join(REPOSITORY_ROOT, "scripts/src", path);
  const options = [`--entry=${script("bench/empty.ts")}`, `--outfile=${outfile}`];
  runSuccessfully({ argv: [process.execPath, script("build/main.ts"), ...options] });
}

export function prepareBench(rounds: number, quick: boolean) {
  const directory = newScratchDirectory();
  const state = directory.path;
  const paths = { plugins: join(state, "bin"), cache: join(state, "cache"), empty: join(state, "empty") };
  const { plugins, cache, empty } = paths;
  mkdirSync(plugins);
  runSuccessfully({ argv: [CNI_PROGRAM, "install", "--no-shim", plugins] });
  compileEmptyProgram(empty);
  const runOptions = (pluginDirectory: string) => ["--cache-dir", cache, "--plugin-dir", pluginDirectory];
  return {
    ...directory,
    ...paths,
    rounds,
    quick,
    state,
    runOptions,
    run: runInvocation(state, runOptions(plugins)),
    exec: execInvocation(plugins),
    reference: execInvocation(REFERENCE_DIRECTORY),
  };
}

export const SUBNET = "10.66.0.0/16";

export function plainNetwork({ state }: BenchWorkspace, name: string, ipMasq = false): Network {
  const ipam = { ...hostLocal({ subnet: SUBNET }), dataDir: join(state, "networks") };
  return { cniVersion: "1.0.0", name, plugins: [{ ...bridgePlugin(name, ipam), ipMasq }] };
}

/** The chain that podman makes for a network, masqueraded. */
export function chainNetwork(bench: BenchWorkspace, name: string): Network {
  const network = plainNetwork(bench, name, true);
  return { ...network, plugins: [...network.plugins, PORTMAP, { type: "firewall" }, { type: "tuning" }] };
}

export interface BenchContainer extends Container {
  readonly namespace: Netns;
}

/** A container until the end of the scope. Its number decides which two ports are published. */
export function newBenchContainer(
  { scope }: Pick<BenchWorkspace, "scope">,
  id: string,
  number: number,
  isUdp = false,
): BenchContainer {
  const namespace = scope.use(createNetns());
  return { id, namespace, netns: namespace.path, portMappings: portMappingsOf(number, isUdp) };
}

/** @param isUdp whether one of them is for UDP, so that DEL has to list the conntrack entries */
export const portMappingsOf = (number: number, isUdp = false) => [
  { hostPort: 20000 + 2 * number, containerPort: 80, protocol: "tcp" },
  { hostPort: 20001 + 2 * number, containerPort: 53, protocol: isUdp ? "udp" : "tcp" },
];

/** Attaches and detaches. All give the milliseconds that the programs took, without what makes their requests. */
export type Contender = ReturnType<typeof newContender>;

export function newContender(host: Netns, invocation: Invocation, network: Network) {
  const caller = new Caller(invocation);
  const call = (verb: Verb) => (container: Container): number => {
    let ms = 0;
    caller.call(network, verb, { container }, (command) => {
      const ended = host.run(() => runSuccessfully(command));
      ms += ended.ms;
      return ended;
    });
    return ms;
  };
  const [add, del] = [call("add"), call("del")];
  return { add, del, both: (container: Container) => ({ add: add(container), del: del(container) }) };
}

/** Attaches and detaches a new container in each round. Containers live until the row is done: while the kernel removes one, it disturbs others. */
export function attachingSide(bench: BenchWorkspace, invocation: Invocation, network: Network, isUdp = false) {
  const { side } = hostWithContainer(bench, invocation, network);
  return (round: number) => side.both(newBenchContainer(bench, `c${round + 1}`, round + 1, isUdp));
}

/** A host with one container on it, so that the bridge and the rules that all containers share exist. */
export function hostWithContainer(bench: BenchWorkspace, invocation: Invocation, network: Network) {
  const host = bench.scope.use(createNetns());
  const side = newContender(host, invocation, network);
  side.add(newBenchContainer(bench, "resident", 0));
  return { host, side };
}
