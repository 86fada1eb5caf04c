/** The networks that containers are attached to, and the contenders that do it. @module */
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import type { Container } from "../harness/container.ts";
import { Caller, type Invocation, type Verb } from "../harness/invocation.ts";
import { bridgePlugin, hostLocal, type Network, PORTMAP } from "../harness/networks.ts";
import { runSuccessfully } from "../harness/process.ts";
import type { BenchWorkspace } from "./workspace.ts";

/** A container whose namespace is open. */
export interface BenchContainer extends Container {
  readonly namespace: Netns;
}

/** Attaches and detaches. Both give the milliseconds that the programs took. */
export interface Contender {
  add(container: Container): number;
  del(container: Container): number;
}

export const SUBNET = "10.66.0.0/16";

/** A bridge with addresses, masqueraded if `ipMasq`. */
export function plainNetwork({ state }: BenchWorkspace, name: string, ipMasq = false): Network {
  const ipam = { ...hostLocal({ subnet: SUBNET }), dataDir: join(state, "networks") };
  return { cniVersion: "1.0.0", name, plugins: [{ ...bridgePlugin(name, ipam), ipMasq }] };
}

/** The chain that podman makes for a network, masqueraded. */
export function chainNetwork(bench: BenchWorkspace, name: string): Network {
  const network = plainNetwork(bench, name, true);
  return { ...network, plugins: [...network.plugins, PORTMAP, { type: "firewall" }, { type: "tuning" }] };
}

/** A container until the end of the scope. Its number decides which two ports are published. */
export function newBenchContainer(scope: DisposableStack, id: string, number: number, isUdp = false): BenchContainer {
  const namespace = scope.use(createNetns());
  return { id, namespace, netns: namespace.path, portMappings: portMappingsOf(number, isUdp) };
}

/** @param isUdp whether one of them is for UDP, so that DEL has to list the conntrack entries */
export const portMappingsOf = (number: number, isUdp = false) => [
  { hostPort: 20000 + 2 * number, containerPort: 80, protocol: "tcp" },
  { hostPort: 20001 + 2 * number, containerPort: 53, protocol: isUdp ? "udp" : "tcp" },
];

/** Calls the plugins of a network on a host. Only the programs are on the clock, not what makes their requests. */
export function newContender(host: Netns, invocation: Invocation, network: Network): Contender {
  const caller = new Caller(invocation);
  const call = (verb: Verb) => (container: Container) => {
    let ms = 0;
    caller.call(network, verb, { container }, (command) => {
      const ended = host.run(() => runSuccessfully(command));
      ms += ended.ms;
      return ended;
    });
    return ms;
  };
  return { add: call("add"), del: call("del") };
}

/** Attaches and detaches one container. */
export function addAndDel(side: Contender, container: Container): { readonly add: number; readonly del: number } {
  return { add: side.add(container), del: side.del(container) };
}
