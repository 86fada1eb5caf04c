/** Makes a host full of containers, faster than by starting programs. @module */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { parseNetworkConfigList, Runtime } from "../../../mod.ts";
import { IFNAME, type Network } from "../harness/networks.ts";
import { runSuccessfully } from "../harness/process.ts";
import { type BenchWorkspace, newBenchContainer, portMappingsOf } from "./workspace.ts";

/** Attaches containers number `from` to `to`, the last excluded, in this process by the same code that `cni run` executes. */
export function attachContainers(bench: BenchWorkspace, host: Netns, network: Network, from: number, to: number): void {
  const list = parseNetworkConfigList(JSON.stringify(network));
  const runtime = new Runtime({ env: process.env, cacheDirectory: bench.cache, pluginDirectories: [] });
  for (let number = from; number < to; number++) {
    const { id, netns, portMappings } = newBenchContainer(bench, `p${number}`, number);
    const parameters = { containerId: id, ifname: IFNAME, netns, capabilityArgs: { portMappings } };
    host.run(() => void runtime.add(list, parameters));
  }
}

/** A chain that the reference makes for a container: named by 24 digits, or by 21 where the name is longer. */
const CHAIN = /^-A POSTROUTING -s ([\d.]+)\/32 .*-j CNI-([0-9a-f]{21})([0-9a-f]{3})$/m;

/** Copies the rules and reservations of the reference's only container. Without interfaces the copies are faster than real ones. */
export function copyRules(host: Netns, bench: BenchWorkspace, network: Network, from: number, to: number): void {
  const saved = host.run(() => runSuccessfully({ argv: ["iptables-save"] })).stdout;
  const [, address, digits] = CHAIN.exec(saved) ?? [];
  if (!address) throw new Error("Cannot find the rules of the reference's container");
  const input = saved.split(/^(?=\*)/m).slice(1).map((table) => copyTable(table, address, digits, from, to)).join("");
  host.run(() => runSuccessfully({ argv: ["iptables-restore", "--noflush"], stdin: input }));
  const directory = join(bench.state, "networks", network.name);
  for (let number = from; number < to; number++) {
    writeFileSync(join(directory, addressOf(number)), `p${number}\r\neth0`);
  }
}

const addressOf = (number: number): string => `10.66.${128 + (number >> 8)}.${number & 255}`;

function copyTable(table: string, address: string, digits: string, from: number, to: number): string {
  const [title, ...lines] = table.split("\n");
  const containerLines = lines.filter((line) => line.includes(digits) || line.includes(`${address}/32`)).join("\n");
  const copies = Array.from({ length: to - from }, (_, at) => {
    const [tcp, udp] = portMappingsOf(from + at).map(({ hostPort }) => `${hostPort}`);
    return containerLines.replaceAll(digits, (from + at).toString(16).padStart(digits.length, "0"))
      .replaceAll(address, addressOf(from + at)).replaceAll(/\b20000\b/g, tcp!).replaceAll(/\b20001\b/g, udp!)
      .split("\n");
  }).flat();
  const [chains, rules] = [":", "-A"].map((start) => copies.filter((line) => line.startsWith(start)));
  return [title, ...chains!, ...rules!, "COMMIT", ""].join("\n");
}
