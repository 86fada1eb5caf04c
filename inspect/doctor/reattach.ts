import { namedNetnsPath, nameOfNetnsPath } from "../../ffi/netns/named.ts";
import { isJsonObject } from "../../spec/schema.ts";
import { stringifyJson } from "../../spec/jsonc.ts";
import type { NetworkAttachment } from "../../runtime/attachments.ts";
import { containerIdOfNetns } from "../../runtime/container_id.ts";
import { formatEndpoint } from "../endpoint.ts";
import { shellCommand } from "../../spec/shell_command.ts";
import { advise, type Remedy } from "./finding.ts";

/** Attaching a container anew, and what that costs it. @param first what to do before */
export function reattach(attachment: NetworkAttachment, first?: string): Remedy {
  const anew = first === undefined ? "attach it anew" : `${first}, then attach it anew`;
  return advise(
    `${anew}, or let its engine restart it: its connections end, and its address may change`,
    reattachCommand(attachment),
  );
}

export function reattachCommand(attachment: NetworkAttachment): string {
  const target = [attachment.network, ...attachmentWords(attachment)];
  const add = ["cni", "run", "add", ...target, ...argumentWords(attachment)];
  return `${shellCommand(["cni", "run", "del", ...target])} && ${shellCommand(add)}`;
}

/** Leaves out what the command line finds out itself. */
function attachmentWords({ netns = "", containerId, ifname }: NetworkAttachment): string[] {
  const name = nameOfNetnsPath(netns);
  return [
    // The id is made from the path.
    name !== undefined && namedNetnsPath(name) === netns ? name : netns,
    ...containerId === containerIdOfNetns(netns) ? [] : ["--container-id", containerId],
    ...ifname === "eth0" ? [] : ["--ifname", ifname],
  ];
}

function argumentWords({ args, capabilityArgs }: NetworkAttachment): string[] {
  const { portMappings, ...others } = capabilityArgs;
  const ports = Array.isArray(portMappings) ? portMappings.filter(isJsonObject) : [];
  return [
    ...ports.flatMap(({ hostIP, hostPort, containerPort, protocol = "tcp" }) => {
      const host = typeof hostIP === "string" && hostIP !== "" ? formatEndpoint(hostIP, Number(hostPort)) : hostPort;
      return ["-p", `${host}:${containerPort}${protocol === "tcp" ? "" : `/${protocol}`}`];
    }),
    ...Object.keys(others).length > 0 ? ["--cap-args", stringifyJson(others)] : [],
    ...args.length > 0 ? ["--args", args.map((pair) => pair.join("=")).join(";")] : [],
  ];
}
