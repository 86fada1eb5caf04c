/** Documents of commands that print nothing else when they succeed. @module */
import { printStdout } from "../../ffi/sys/stdio.ts";
import { formatDocument } from "./document.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import type { Attachment } from "../../spec/plugin_config.ts";

interface NetworkReport {
  readonly network: string;
  /** Has what standard error has; empty if all is well. */
  readonly warnings: readonly string[];
}

interface AttachmentReport extends NetworkReport, Attachment {}

interface GcReport {
  readonly network: string;
  readonly removed: readonly Attachment[];
}

type Heard = { readonly messages: readonly string[] };

export function printNetworkReport({ name }: NetworkConfigList, { messages }: Heard): void {
  print<NetworkReport>({ network: name, warnings: messages });
}

export function printAttachmentReport(
  network: NetworkConfigList | string,
  { containerId, ifname }: Attachment,
  { messages }: Heard,
): void {
  const name = typeof network === "string" ? network : network.name;
  print<AttachmentReport>({ network: name, containerId, ifname, warnings: messages });
}

export function printGcReport({ name }: NetworkConfigList, removed: readonly Attachment[]): void {
  print<GcReport>({ network: name, removed });
}

function print<T extends object>(report: T): void {
  printStdout(formatDocument(report));
}
