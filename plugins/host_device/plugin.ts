import type { PluginModel } from "../lib/model/plugin_model.ts";
import { removeWithTemporary } from "../../ffi/sys/atomic_file.ts";
import { writeState } from "../lib/protocol/state_file.ts";
import { netnsRecordOf } from "../../ffi/netns/record.ts";
import type * as link from "../../ffi/route/link.ts";
import { type HostDeviceConfig, hostDeviceConfig } from "./config.ts";
import { getHostDevice, type HostDevice, isUserspaceDriven, requireSelector } from "./find_device.ts";
import { moveToContainer, moveToHost, restoreOnHost } from "./move_device.ts";
import { describeDevice, findKnownDevice, findSavedDevice, type SavedDevice, savedDevicePath } from "./saved_device.ts";
import { requireContainerInterface } from "../lib/links/check_interface.ts";
import {
  type AddCall,
  collectionSteps,
  type Plugin,
  plugin,
  releaseSteps,
  requirePrevResult,
  runAllSteps,
} from "../lib/protocol/plugin.ts";
import { assignAddresses, attachInterface, checkAttachedInterface } from "../lib/links/single_interface.ts";
import { CniError } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { LATEST } from "../../spec/version.ts";
import { gcDevices, restoreAbandoned, returnDevice } from "./return_device.ts";

export function hostDevice(sysfs = "/sys"): Plugin<HostDeviceConfig> {
  return plugin<HostDeviceConfig>({
    name: "host-device",
    about: "Moves a device of the host into the container",
    config: hostDeviceConfig,
    model: (): PluginModel => require("./model.ts").default,

    validate({ config, pluginConfig }) {
      // The runtime chooses the device.
      if (!pluginConfig.capabilities.deviceID) requireSelector(config);
    },

    add(call) {
      const device = findOrRestoreDevice(call, sysfs);
      const result = device.link
        ? attachInterface(call, attachDevice(call, device.link), false)
        : attachWithoutLink(call);
      const [reported] = result.interfaces!;
      // Older versions lack the key.
      return device.pciID && call.pluginConfig.cniVersion === LATEST
        ? { ...result, interfaces: [{ ...reported!, pciID: device.pciID }] }
        : result;
    },

    del(call) {
      runAllSteps(...releaseSteps(call.ipam, () => returnDevice(call, sysfs)));
    },

    check(call) {
      if (!isUserspaceDriven(call.config, sysfs)) return void checkAttachedInterface(call, "host-device");
      call.ipam?.check();
      requireContainerInterface(requirePrevResult(call, "host-device"), call.ifname, call.sandbox);
    },

    status({ config, pluginConfig, ipam }) {
      // Only ADD gets the runtime's choice. A missing device may be in a container.
      if (!pluginConfig.capabilities.deviceID) requireSelector(config);
      ipam?.status();
    },

    gc(call) {
      runAllSteps(...collectionSteps(call.ipam, () => gcDevices(call)));
    },
  });
}

export default hostDevice();

/** If a container died, the kernel returned its device under the container's name. Then the device first gets its own name. */
function findOrRestoreDevice(call: AddCall<HostDeviceConfig>, sysfs: string): HostDevice {
  const { host, config } = call;
  try {
    return getHostDevice(host, config, sysfs);
  } catch (error) {
    if (!(error instanceof CniError) || !restoreAbandoned(call)) throw error;
    return getHostDevice(host, config, sysfs);
  }
}

/** The program that drives the device takes the addresses from the result. */
function attachWithoutLink(call: AddCall<HostDeviceConfig>): Result {
  return assignAddresses(call, { name: call.ifname, sandbox: call.sandbox });
}

function attachDevice(call: AddCall<HostDeviceConfig>, device: link.Link): link.Link {
  const { host, netns, ifname, config, containerId, undo, log } = call;
  const path = savedDevicePath(config.dataDir, call);
  // An attachment without a DEL has left it.
  const leftover = findKnownDevice(path, log);
  if (leftover) restoreOnHost(host, leftover, false, log);
  const saved: SavedDevice = {
    owner: { network: call.pluginConfig.name, containerID: containerId, ifname },
    netns: { path: netns.path, ...netnsRecordOf(netns) },
    ...describeDevice(device),
  };
  undo.defer(() => {
    moveToHost(host, netns, findSavedDevice(path, log) ?? saved, log);
    removeWithTemporary(path, log);
  });
  writeState(path, saved);
  const containerLink = moveToContainer(host, netns, device, ifname);
  writeState(path, { ...saved, inside: containerLink.index });
  return containerLink;
}
