import { printable } from "../../spec/printable.ts";
import type { AttachmentSummary } from "../../inspect/attachment_summary.ts";
import type { Screen } from "./screen.ts";

/** The last line has no end. */
export function formatSummary(
  { network, interfaces, ports }: AttachmentSummary,
  milliseconds: number,
  { style }: Pick<Screen, "style">,
): string {
  const lines = [
    ...interfaces.map(({ name, addresses, bridge }) => [
      style("bold", printable(name)),
      addresses.join(", ") || "no address",
      `on network ${network}${bridge === undefined ? "" : `, bridge ${bridge}`}`,
    ]),
    ...ports.map(({ address, target }) => [style("cyan", address), "->", target]),
    [style("dim", `attached in ${milliseconds} ms`)],
  ];
  return lines.map((words) => words.join(" ")).join("\n");
}
