import { ipOf } from "../../ffi/address.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { netnsRecordOf } from "../../ffi/netns/record.ts";
import * as link from "../../ffi/route/link.ts";
import { findNsid } from "../../ffi/route/nsid.ts";
import { findStat, findSymlinkTarget } from "../../ffi/sys/stat.ts";
import type { PluginModel } from "../lib/model/plugin_model.ts";
import { awaitLinkOperational } from "../lib/links/configure_interface.ts";
import { checkFailedError } from "../lib/protocol/check_failed.ts";
import { type AddCall, type AttachmentCall, type CheckCall, plugin, type PluginCall } from "../lib/protocol/plugin.ts";
import { requireAvailable } from "../lib/protocol/silent_servers.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { askDhcpServer, NoDhcpServerError } from "./client.ts";
import { type DaemonConfig, daemonConfig, dhcpConfigSchema, parseLeaseOptions } from "./config.ts";
import { type LeaseAnswer, leaseFileName, type LeaseSettings, stateDirectoryOf } from "./protocol.ts";

const MAX_CLIENT_ID_BYTES = 254;

export default plugin<DaemonConfig>({
  name: "dhcp",
  about: "Leases an address from a DHCP server of the network",
  config: { ...daemonConfig, inner: dhcpConfigSchema },
  model: (): PluginModel => require("./model.ts").default,
  args: "all",

  validate: ({ pluginConfig }) => void parseLeaseOptions(pluginConfig, {}),

  add(call) {
    const settings = leaseSettingsOf(call);
    setLinkUp(call);
    call.undo.defer(() => release(call));
    try {
      const { lease } = askDhcpServer(call.host, socketOf(call), { command: "add", settings });
      return resultOf(lease!);
    } catch (error) {
      throw withPrefix(error, "error calling DHCP.Allocate");
    }
  },

  del: release,

  check(call) {
    const { lease } = ask(call, { command: "check", attachment: attachmentOf(call) }, "error calling DHCP.Allocate");
    const reported = call.prevResult?.ips?.map(({ address }) => ipOf(address));
    const leased = ipOf(lease!.address);
    if (!reported || reported.includes(leased)) return;
    throw checkFailedError(`prevResult lacks address ${leased}, which is leased for "${call.ifname}"`);
  },

  gc(call) {
    const { pluginConfig: { name: network }, validAttachments, snapshotTime, log } = call;
    // A newer lease cannot be on the list.
    const snapshotTimeMs = Number(snapshotTime / 1_000_000n);
    const valid = validAttachments.map(({ containerId, ifname }) => ({ containerId, ifname }));
    withoutServer(log, "the leases of stale attachments", () => {
      const { released = [] } = askDhcpServer(
        call.host,
        socketOf(call),
        { command: "gc", network, valid, snapshotTimeMs },
      );
      for (const lease of released) log(`Released ${lease}`);
    });
  },

  status(call) {
    parseLeaseOptions(call.pluginConfig, {});
    requireAvailable(() => void askDhcpServer(call.host, socketOf(call), { command: "status" }));
  },
});

const socketOf = ({ config }: PluginCall<DaemonConfig>): string => config.ipam.daemonSocketPath;

const attachmentOf = ({ pluginConfig: { name: network }, containerId, ifname }: AttachmentCall<DaemonConfig>) => ({
  network,
  containerId,
  ifname,
});

function ask(call: CheckCall<DaemonConfig>, request: Parameters<typeof askDhcpServer>[2], purpose: string) {
  try {
    return askDhcpServer(call.host, socketOf(call), request);
  } catch (error) {
    if (error instanceof NoDhcpServerError) throw checkFailedError(error.message, error.details);
    throw withPrefix(error, purpose);
  }
}

function release(call: AttachmentCall<DaemonConfig>): void {
  const leasePath = `${stateDirectoryOf(socketOf(call))}/${leaseFileName(attachmentOf(call))}`;
  const logIfLeased = (message: string) => {
    if (findStat(leasePath)) call.log(message);
  };
  const request = { command: "del", attachment: attachmentOf(call) } as const;
  withoutServer(
    logIfLeased,
    "the lease",
    () => void askDhcpServer(call.host, socketOf(call), request),
  );
}

/** A server that starts later finds the interface gone, and releases the address then. */
function withoutServer(log: (message: string) => void, what: string, action: () => void): void {
  try {
    action();
  } catch (error) {
    if (!(error instanceof NoDhcpServerError || (error instanceof CniError && error.code === Code.TryAgainLater))) {
      throw error;
    }
    log(`Cannot release ${what} now: ${error.message}; the next server does`);
  }
}

/** Programs know these errors by the reference plugin's words. */
function withPrefix(error: unknown, prefix: string): unknown {
  if (!(error instanceof CniError)) return error;
  const { code, message, details } = error;
  return new CniError(code, `${prefix}: ${message}`, { ...details && { details }, cause: error });
}

function leaseSettingsOf(call: AddCall<DaemonConfig>): LeaseSettings {
  const { pluginConfig, netns, sandbox, args } = call;
  const { clientId, provided, requested, priority } = parseLeaseOptions(pluginConfig, args);
  return {
    ...attachmentOf(call),
    netns: pathForOthers(sandbox, netns),
    netnsRecord: netnsRecordOf(netns),
    clientId: (clientId ?? defaultClientId(call)).toHex(),
    provided: provided.map(({ code, value }) => ({ code, value: value.toHex() })),
    requested,
    priority,
  };
}

/** Where the server finds what this process calls `path`: later, too, if it is a descriptor of a mounted namespace. */
function pathForOthers(path: string, { identity }: Netns): string {
  const absolute = path.startsWith("/") ? path : `${findSymlinkTarget("/proc/self/cwd")}/${path}`;
  const own = absolute.replace(/^\/dev\/fd\//, "/proc/self/fd/")
    .replace(/^\/proc\/(thread-)?self\//, `/proc/${process.pid}/`);
  const file = own.startsWith(`/proc/${process.pid}/fd/`) ? findSymlinkTarget(own) : undefined;
  return file?.startsWith("/") && findStat(file)?.identity === identity ? file : own;
}

/** The reference plugin's, so that leases survive a change of program. The first byte says that no hardware address follows. */
function defaultClientId({ containerId, pluginConfig: { name }, ifname }: AttachmentCall<DaemonConfig>): Uint8Array {
  const text = new TextEncoder().encode(`${containerId}/${name}/${ifname}`);
  return Uint8Array.of(0, ...text.subarray(0, MAX_CLIENT_ID_BYTES));
}

function resultOf({ address, gateway, routes, dns }: LeaseAnswer): Result {
  return {
    ips: [{ address, ...gateway && { gateway } }],
    ...routes.length > 0 && { routes },
    ...Object.keys(dns).length > 0 && { dns },
  };
}

/** Plugins that delegate to this one set the interface up later. A frame of a port that is not ready is lost. */
function setLinkUp({ host, netns, ifname }: AddCall<DaemonConfig>): void {
  const found = link.find(netns.route, ifname);
  if (!found) {
    throw new CniError(Code.InvalidEnvironment, `Cannot lease an address: the container has no interface "${ifname}"`, {
      details: "dhcp is for ipam.type: a plugin such as bridge makes the interface, and calls it",
    });
  }
  if (!link.isUp(found)) link.setUp(netns.route, found.index);
  try {
    const { linkIndex, linkNetnsId } = awaitLinkOperational(netns, link.get(netns.route, found.index));
    const isOnHost = linkNetnsId !== undefined && findNsid(netns.route, host.fd) === linkNetnsId;
    const hostEnd = isOnHost && linkIndex !== undefined ? link.find(host.route, linkIndex) : undefined;
    if (hostEnd) awaitLinkOperational(host, hostEnd);
  } catch (error) {
    // Without a carrier the server tries on; it may come.
    if (!(error instanceof NetlinkError && error.code === "ETIMEDOUT")) throw error;
  }
}
