import { isIp } from "../../../ffi/address.ts";
import { enterHostMounts } from "../../../ffi/netns/mounts.ts";
import { printStdout } from "../../../ffi/sys/stdio.ts";
import { askLine } from "../../../plugins/lib/policy/ask_line.ts";
import { protocolNumber } from "../../../policy/api/protocol.ts";
import type { PolicyQuestion, PolicyVerdict } from "../../../policy/explain.ts";
import { type PolicyRequest, policySocketPath } from "../../../policy/socket.ts";
import { DEFAULT_POLICY_STATE_DIRECTORY } from "../../../policy/status.ts";
import { UsageError } from "../../../program/usage_error.ts";
import { JSON_OPTION } from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import { formatDocument } from "../../output/document.ts";

/** It may have to ask the API for two pods. */
const WAIT_MS = 10_000;

const policyTest: Command = {
  name: "test",
  summary: "tell whether policies let one end connect to the other, and why",
  description:
    `The server's part "policy" of this node answers, by what it knows of the API. It tells of the policies alone, and
sends no packet. The exit status is 1 if policies forbid the connection, and 2 if nobody can tell.`,
  failureStatus: 2,
  arguments: [
    { name: "FROM", help: "the end that connects: a pod as NAMESPACE/NAME, or an address" },
    { name: "TO", help: "the other end, behind a Service: a pod as NAMESPACE/NAME, or an address" },
    { name: "PORT", help: "of the other end: 80, 53/udp, 7/sctp" },
  ],
  options: [JSON_OPTION],
  examples: [
    { command: "cni policy test web/a db/b 5432", about: "may pod a of namespace web connect to b of db?" },
    { command: "cni policy test web/a 192.0.2.7 53/udp", about: "may it ask a name server outside of the cluster?" },
  ],
  run({ words: [from = "", to = "", port = ""], has }) {
    const question: PolicyQuestion = { from: requireEnd(from), to: requireEnd(to), ...parsePort(port) };
    // In a container of the server's pod, too.
    enterHostMounts();
    const verdict = ask(question);
    printStdout(has("json") ? formatDocument(verdict) : formatVerdict(question, port, verdict));
    return verdict.isAllowed ? 0 : 1;
  },
};
export default policyTest;

function requireEnd(text: string): string {
  if (isIp(text) || /^[^/]+\/[^/]+$/.test(text)) return text;
  throw new UsageError(`an end must be NAMESPACE/NAME of a pod, or an address: got ${JSON.stringify(text)}`);
}

function parsePort(text: string): { readonly protocol: number; readonly port: number } {
  const [, number, name = "tcp"] = /^(\d{1,5})(?:\/([a-z]+))?$/i.exec(text) ?? [];
  const protocol = protocolNumber(name.toUpperCase());
  const port = Number(number);
  if (protocol !== undefined && port >= 1 && port <= 65_535) return { protocol, port };
  throw new UsageError(`PORT must be such as 80, 53/udp or 7/sctp: got ${JSON.stringify(text)}`);
}

function ask(question: PolicyQuestion): PolicyVerdict {
  const request: PolicyRequest = { test: question };
  const found = askLine(policySocketPath(DEFAULT_POLICY_STATE_DIRECTORY), request, WAIT_MS);
  if ("problem" in found) {
    const need = found.isAbsent ? ' (this node needs "cni serve --cluster" with network-policy)' : "";
    throw new RangeError(`Cannot test policies: ${found.problem}${need}`);
  }
  if (!("verdict" in found.answer)) throw new RangeError("Cannot test policies: the server has another version");
  return found.answer.verdict as unknown as PolicyVerdict;
}

function formatVerdict(
  { from, to }: PolicyQuestion,
  port: string,
  { isAllowed, egress, ingress }: PolicyVerdict,
): string {
  const line = (name: string, { isAllowed: isOpen, reason }: PolicyVerdict["egress"]) =>
    `  ${name} ${isOpen ? "allowed" : "denied"}: ${reason}\n`;
  return `${from} to ${to} ${port}: ${isAllowed ? "allowed" : "denied"}\n` +
    line("egress ", egress) + line("ingress", ingress);
}
