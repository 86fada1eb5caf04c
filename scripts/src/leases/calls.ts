/** Calls of the plugin bridge, as an engine makes them. @module */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { ENGINE_ENV, fullProgramLink } from "../../../testing/binary.ts";
import type { DhcpNetwork } from "../../../testing/dhcp.ts";
import { findShownLink, shownAddresses } from "../../../testing/fixture_configs.ts";

export interface BridgeAnswer {
  readonly exitCode: number;
  // deno-lint-ignore no-explicit-any -- what a plugin prints
  readonly document: any;
}

/** Calls the plugin bridge as a process. */
export async function callBridge(
  { host, config }: DhcpNetwork,
  command: string,
  containerId: string,
  netns: Netns,
  prevResult?: object,
): Promise<BridgeAnswer> {
  const child = host.run<Bun.Subprocess<"pipe" | Buffer, "pipe">>(() =>
    Bun.spawn([fullProgramLink("bridge")], {
      env: { ...ENGINE_ENV, CNI_COMMAND: command, CNI_CONTAINERID: containerId, CNI_NETNS: netns.path },
      stdin: Buffer.from(JSON.stringify({ cniVersion: "1.1.0", type: "bridge", ...config, prevResult })),
      stdout: "pipe",
      stderr: "ignore",
    })
  );
  const text = await new Response(child.stdout).text();
  return { exitCode: await child.exited, document: text === "" ? {} : JSON.parse(text) };
}

export function requireBridgeSuccess(what: string, { exitCode, document }: BridgeAnswer): void {
  if (exitCode !== 0) throw new Error(`${what} failed: ${JSON.stringify(document)}`);
}

/** What DHCP server and server of leases remember. */
function remembered({ directory }: DhcpNetwork): readonly string[] {
  const leases = join(directory, "dnsmasq.leases");
  return [
    ...existsSync(leases) ? readFileSync(leases, "utf8").split("\n").filter((line) => line !== "") : [],
    ...leaseFiles(directory),
  ];
}

/** @param directory of the socket of the server of leases */
export const leaseFiles = (directory: string): readonly string[] =>
  readdirSync(join(directory, "dhcp")).filter((name) => name.endsWith(".json")).map((name) =>
    join(directory, "dhcp", name)
  );

export async function requireNothingRemembered(network: DhcpNetwork, what: string): Promise<void> {
  // A release is on its way for a moment.
  for (const deadline = performance.now() + 5000; remembered(network).length > 0; await Bun.sleep(20)) {
    if (performance.now() > deadline) throw new Error(`${what}: left are ${remembered(network).join(", ")}`);
  }
}

/** A container of a section. */
export interface Attached {
  readonly id: string;
  readonly netns: Netns;
  /** What its ADD has answered. */
  readonly result: object;
  readonly address: string;
}

/** ADDs that run at once, each with an address of its own. */
export async function attachMany(
  network: DhcpNetwork,
  resources: DisposableStack,
  count: number,
): Promise<readonly Attached[]> {
  const containers = Array.from({ length: count }, (_, i) => ({ id: `c${i}`, netns: resources.use(createNetns()) }));
  const attached = await Promise.all(containers.map(async ({ id, netns }) => {
    const answer = await callBridge(network, "ADD", id, netns);
    requireBridgeSuccess(`ADD of ${id}`, answer);
    return { id, netns, result: answer.document as object, address: answer.document.ips[0].address as string };
  }));
  const addresses = new Set(attached.map(({ address }) => address));
  if (addresses.size !== count) throw new Error(`${count} containers have ${addresses.size} addresses`);
  return attached;
}

async function callMany(network: DhcpNetwork, command: string, attached: readonly Attached[]): Promise<void> {
  await Promise.all(attached.map(async ({ id, netns, result }) => {
    requireBridgeSuccess(`${command} of ${id}`, await callBridge(network, command, id, netns, result));
  }));
}

/** Checks all, detaches them, and sees that nothing is left. */
export async function detachMany(network: DhcpNetwork, attached: readonly Attached[]): Promise<void> {
  for (const command of ["CHECK", "DEL"]) await callMany(network, command, attached);
  await requireNothingRemembered(network, "after all DELs");
}

export const occurrences = (text: string, word: string): number => text.split(word).length - 1;

/** Whether the container's interface has its address. */
export function hasLeasedAddress({ netns, address }: Attached): boolean {
  return shownAddresses(findShownLink(netns)).includes(address.split("/")[0]!);
}

export function requireLeasedAddresses(attached: readonly Attached[], when: string): void {
  const without = attached.filter((container) => !hasLeasedAddress(container)).map(({ id }) => id);
  if (without.length > 0) throw new Error(`${when}, these containers have no address: ${without.join(", ")}`);
}
