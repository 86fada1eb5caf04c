import type { NetworkSummary } from "../../networks/list.ts";
import type { RemovedNetwork } from "../../networks/remove.ts";
import type { AddressPool } from "../../plugins/lib/model/reservations.ts";

export function formatFile({ origin, file = "" }: Pick<NetworkSummary, "origin" | "file">): string {
  return { file, "built-in": "(built in)", attachment: "(removed)" }[origin];
}

/** Numbers of IPv6 subnets are longer than a column. */
export function formatCount(count: number | string): string {
  return Number(count) < 1e9 ? String(count) : `2^${Math.round(Math.log2(Number(count)))}`;
}

export function formatPools(pools: readonly AddressPool[], numberOf: (pool: AddressPool) => number | string): string {
  return pools.map((pool) => formatCount(numberOf(pool))).join(", ");
}

export function formatRemoved(networks: readonly RemovedNetwork[]): string {
  return networks.flatMap(({ name, steps }) =>
    steps.map(({ description }) =>
      `${name}: ${description.replace(/^remove/, "removed").replace(/^detach/, "detached")}\n`
    )
  ).join("");
}
