/** The floor that no design of ours can lower: a C program that does what the chain needs, see `minimal.c`. @module */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { runSuccessfully } from "../harness/process.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { compile } from "./floor.ts";
import { type BenchWorkspace, chainNetwork, hostWithContainer, newBenchContainer } from "./workspace.ts";

const RULES = `table ip floor {
  map ports { type inet_proto . inet_service : ipv4_addr . inet_service; }
  set sources { type ipv4_addr; }
  set accepted { type ipv4_addr; }
  chain prerouting { type nat hook prerouting priority dstnat; dnat ip addr . port to meta l4proto . th dport map @ports; }
  chain output { type nat hook output priority -100; dnat ip addr . port to meta l4proto . th dport map @ports; }
  chain postrouting { type nat hook postrouting priority srcnat; ip saddr @sources masquerade; }
  chain forward { type filter hook forward priority filter; ip saddr @accepted accept; ip daddr @accepted accept; }
}`;

/** Attaches and detaches a new container in each round, on a host like those of our own chain. */
export function compileMinimal(bench: BenchWorkspace, name: string) {
  const program = compile(name, bench.state, [join(REPOSITORY_ROOT, "scripts/src/bench/minimal.c")]);
  const { host } = hostWithContainer(bench, bench.run, chainNetwork(bench, name));
  host.run(() => runSuccessfully({ argv: ["nft", "-f", "-"], stdin: RULES }));
  const directory = join(bench.state, `minimal-${name}`);
  mkdirSync(directory);
  return (round: number) => {
    const { netns } = newBenchContainer(bench, "minimal", 0);
    const call = (verb: string) =>
      host.run(() => runSuccessfully({ argv: [program, verb, netns, name, directory, `${round + 1}`] })).ms;
    return { add: call("add"), del: call("del") };
  };
}
