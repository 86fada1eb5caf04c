import type { ClusterPartSettings } from "../cluster/settings.ts";
import type { PolicyPartSettings } from "../policy/settings.ts";

/** Processes of parts get it as JSON. */
export interface PartSettings {
  readonly parts: readonly string[];
  readonly socket: string;
  /** The directory of the socket: sockets and state of the parts are in it. */
  readonly directory: string;
  readonly logFormat: "text" | "json";
  readonly confDirectory: string;
  readonly pluginDirectories: readonly string[];
  readonly cacheDirectories: readonly string[];
  /** Whether bridges get addresses back, and ports their bridge. */
  readonly healLinks: boolean;
  readonly metricsAddress?: string;
  /** Absent unless this server makes the network of a cluster. */
  readonly cluster?: ClusterPartSettings;
  /** Absent unless this server enforces NetworkPolicy. */
  readonly policy?: PolicyPartSettings;
}

export interface PartDescriptors {
  readonly listener: number;
  /** A pipe that ends with the server. */
  readonly lifetime: number;
  /** A pipe: metrics read what the others write. */
  readonly reports: number;
  /** A file that says which parts have work, see part_work.ts. */
  readonly work: number;
  /** The directory of the service account, which is not among the host's mounts. */
  readonly account: number;
}

export const PART_DESCRIPTORS: PartDescriptors = { listener: 3, lifetime: 4, reports: 5, work: 6, account: 7 };
