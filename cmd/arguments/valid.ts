import { type Runtime, UnknownAttachmentError } from "../../runtime/runtime.ts";
import { containerIdProblem, ifnameProblem } from "../../spec/env.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import type { OptionSpec, ParsedOptions } from "../options.ts";
import { UsageError } from "../../program/usage_error.ts";
import { parseIfname } from "./attachment.ts";

export const VALID_OPTION: OptionSpec = {
  name: "valid",
  value: "ID[/IFNAME]",
  help: "an attachment to keep, by the id or name of its container or its namespace's name, repeatable",
};

export const ALL_OPTION: OptionSpec = { name: "all", help: "keep nothing" };

/** Attachments of engines, and detached ones, are unknown. */
export const IGNORE_UNKNOWN_OPTION: OptionSpec = {
  name: "ignore-unknown",
  help: "accept a --valid that is not remembered, and keep it too",
};

export function refuseValidAndAll(options: ParsedOptions): void {
  if (!options.has(VALID_OPTION.name) || !options.has(ALL_OPTION.name)) return;
  throw new UsageError("--all keeps nothing, and --valid names what to keep: leave out one of the two");
}

/** The interface defaults to `--ifname`. */
export async function parseValid(
  options: ParsedOptions,
  runtime: Pick<Runtime, "attachments">,
  network: string,
): Promise<Attachment[]> {
  const texts = options.list(VALID_OPTION.name);
  if (texts.length === 0) return [];
  const { findIdByEngineName, namedAttachments } = await import("./engine_container.ts");
  const attachments = namedAttachments(runtime, network)();
  const findId = (name: string) => findIdByEngineName(name, attachments);
  const ifname = parseIfname(options);
  return texts.map((text) => findNamedAttachment(text, findId, ifname) ?? parseAttachmentName(text, ifname));
}

export function refuseUnknownNames<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    if (!(error instanceof UnknownAttachmentError)) throw error;
    throw new UsageError(`${error.message} (--${IGNORE_UNKNOWN_OPTION.name} accepts such names, and keeps them too)`);
  }
}

/** A pod's name has a slash, too. */
function findNamedAttachment(
  text: string,
  findId: (name: string) => string | undefined,
  defaultIfname: string,
): Attachment | undefined {
  const slash = text.lastIndexOf("/");
  const whole = findId(text);
  if (whole !== undefined) return { containerId: whole, ifname: defaultIfname };
  const containerId = slash < 0 ? undefined : findId(text.slice(0, slash));
  return containerId === undefined ? undefined : { containerId, ifname: text.slice(slash + 1) };
}

function parseAttachmentName(text: string, defaultIfname: string): Attachment {
  const [, containerId = "", ifname = defaultIfname] = /^([^/]*)(?:\/([^]*))?$/.exec(text)!;
  const idProblem = containerIdProblem(containerId);
  const [what, problem] = idProblem ? ["container id", idProblem] : ["interface name", ifnameProblem(ifname)];
  if (!problem) return { containerId, ifname };
  throw new UsageError(`--valid must be ID or ID/IFNAME: got ${JSON.stringify(text)}, whose ${what} ${problem}`);
}
