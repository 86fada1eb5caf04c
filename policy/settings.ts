import type { DropHandling } from "../plugins/lib/policy/drops.ts";

/** What the part of the server is told. */
export interface PolicyPartSettings {
  /** The name of this node's object. */
  readonly node: string;
  /** The name of the network that the server gives engines. */
  readonly network?: string;
  /** `https://10.96.0.1:443` */
  readonly apiServer: string;
  readonly drops: DropHandling;
}
