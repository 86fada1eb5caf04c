import type { Ip } from "../../../ffi/address.ts";
import type { NetworkConfigList } from "../../../spec/network_config_list.ts";

/** One effect of removing a network, as `cni network rm --json` prints it. */
export interface RemovalStep {
  readonly action: "detach" | "clean" | "remove-link" | "remove-address" | "remove-directory" | "remove-file";
  /** `eth0 of container "c1"`, a link or a path. */
  readonly target: string;
  /** An imperative: `remove the bridge "cni-web"`. */
  readonly description: string;
}

export interface RemovalEffect extends RemovalStep {
  /** Succeeds if it has been carried out already. @returns false if the target stays, which it logs */
  carryOut(): boolean;
}

/** A network that goes, beside those that stay. */
export interface NetworkRemoval extends NetworkOfFile {
  /** What two networks share stays. It reads the files of the directory: rarely needed. */
  readOthers(): readonly OtherNetwork[];
  log(message: string): void;
}

export interface NetworkOfFile {
  readonly list: NetworkConfigList;
  /** The gateways of its address pools. @throws {CniError} if the ranges cannot be used */
  gateways(): readonly Ip[];
}

export interface OtherNetwork extends NetworkOfFile {
  readonly file: string;
}
