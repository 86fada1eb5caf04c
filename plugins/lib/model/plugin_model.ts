/** What plugins tell the commands that look at networks: lint, doctor, show, dry run, heal, `cni network`. @module */
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import type { PluginConfig } from "../../../spec/plugin_config.ts";
import type { JsonObject } from "../../../spec/schema.ts";
import type { Result } from "../../../spec/result.ts";
import type { Owner } from "./owner.ts";
import type { NetworkModel } from "./network_model.ts";
import type { PartContext } from "./part.ts";
import type { PublishedPorts } from "./published_ports.ts";
import type { NetworkRemoval, RemovalEffect } from "./removal.ts";
import type { Wanted, WantedBy } from "./wanted.ts";
import type { AddressReservations } from "./reservations.ts";

/** Those commands ask this interface, and know no plugin by name. Calls of plugins do not load it. */
export interface PluginModel {
  /** What the network's containers share. @param raw the plugin's object @throws {ConfigError} */
  network?(raw: JsonObject): NetworkModel;
  /** What it has made of an attachment besides what the result names. @throws {ConfigError} */
  wanted?(config: PluginConfig, attachment: WantedBy): Wanted;
  /** The host's ports that lead to a container. @throws {ConfigError} */
  publishedPorts?(config: PluginConfig, ifname: string, result: Result): PublishedPorts;
  /** Where an IPAM plugin keeps its addresses. @throws {ConfigError} if that cannot be told */
  reservations?(config: PluginConfig): AddressReservations;
  /** How containers get through chains of other programs. @throws {ConfigError} */
  forwardAccept?(config: PluginConfig): ForwardAccept;
  /** What an earlier plugin has made and it changes: a difference there is no mistake. */
  readonly changes?: "mtu" | "routing tables";
  /** Whether it works only where the host routes what containers send. */
  readonly needsRouter?: true;
  /** Whether it moves a device of the host into the container, which no copy of the host has. */
  readonly takesDevice?: true;
  /** Removes an attachment's rules alone: its links and addresses may be another's by now. @throws {Error} */
  removeRules?(host: Netns, owner: Owner): void;
  /** Its chains in tables of other programs, by name. */
  readonly foreignChains?: readonly string[];
  /** Words after the program's name that are no call of a plugin: `dhcp daemon`. They return the exit status. */
  readonly commands?: Readonly<Record<string, PluginSubcommand>>;
  /** What it does between calls, as a part of `cni serve`. Returns when the part is to end. */
  serve?(context: PartContext): Promise<void>;
  /** What goes when its network is removed. By then, nothing is attached. @throws {ConfigError} */
  planRemoval?(removal: NetworkRemoval): readonly RemovalEffect[];
}

export type PluginSubcommand = (
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
) => Promise<number>;

/** A chain of ours that chains of other programs call for forwarded packets. */
export interface ForwardAccept {
  readonly chain: string;
  /** Whether an ADD has this base chain call it. */
  serves(nl: Netlink, base: BaseChainKey): boolean;
}

export interface BaseChainKey {
  /** One of the kernel's NFPROTO_ constants. */
  readonly family: number;
  readonly table: string;
  readonly name?: string | undefined;
}
