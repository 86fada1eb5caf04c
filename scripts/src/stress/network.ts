/** The networks that containers come to and leave. @module */
import { execInvocation, type Invocation, runInvocation } from "../harness/invocation.ts";
import { bridgePlugin, hostLocal, type Network, newChain } from "../harness/networks.ts";

/** A network, and how its plugins are called. */
export interface StressNetwork {
  readonly invocation: Invocation;
  readonly network: Network;
}

/** A network for each invocation. Of each family it has 125 addresses, or many more if it is large. */
export function newNetworks(cni: string, isLarge = false): readonly StressNetwork[] {
  return [runInvocation(cni, "/run"), execInvocation()].map((invocation, i) => {
    const number = i + 1;
    const [ipv4, ipv6] = [`10.${number}.0.0`, `fd00:${number}::`];
    const ipam = isLarge
      ? hostLocal({ subnet: `${ipv4}/20` }, { subnet: `${ipv6}/64` })
      : hostLocal({ subnet: `${ipv4}/25` }, { subnet: `${ipv6}/121`, rangeEnd: `${ipv6}7e` });
    return { invocation, network: newChain(`${invocation.name}${number}`, bridgePlugin(`br${number}`, ipam)) };
  });
}
