/**
 * Taps: Ethernet interfaces of which a program is the other end. The kernel makes them by ioctl(2), netlink only shows them.
 *
 * @see linux/if_tun.h, Documentation/networking/tuntap.rst
 * @module
 */
import { withPurpose } from "../sys/error.ts";
import { type Descriptor, descriptor } from "../sys/file.ts";
import { sys } from "../sys/libc.ts";
import { IFNAMSIZ, O_CLOEXEC, O_RDWR } from "../sys/uapi.ts";
import { IFF_MULTI_QUEUE, IFF_NO_PI, IFF_TAP, TUNSETIFF } from "./uapi.ts";

/** The driver; where it is absent, there are no taps. */
export const TUN_DEVICE = "/dev/net/tun";

// linux/if_tun.h
const TUNSETPERSIST = 0x400454cb;
const TUNSETOWNER = 0x400454cc;
const TUNSETGROUP = 0x400454ce;
const IFF_VNET_HDR = 0x4000;
const IFF_TUN_EXCL = 0x8000;

/** linux/if.h struct ifreq */
const IFREQ_BYTES = 40;

/** What can only be said while the tap is made. */
export interface TapOptions {
  /** Programs may open it several times, to be served by several threads. */
  readonly multiQueue?: boolean;
  /** The user who may open it; root alone unless told. */
  readonly owner?: number;
  /** The group whose members may open it. */
  readonly group?: number;
}

/**
 * Creates a tap in the namespace that the thread is in. Frames are told with the header of virtio and without one of the tun driver's,
 * until a program that opens it says otherwise.
 *
 * @param name new to the namespace, of 15 bytes at most
 * @returns what keeps it in being: it is gone once this is closed, unless {@linkcode persistTap} was called
 * @throws {SystemError} `EBUSY` if there is an interface of that name
 */
export function createTap(name: string, { multiQueue = false, owner, group }: TapOptions = {}): Descriptor {
  const tap = descriptor(withPurpose(`open "${TUN_DEVICE}"`, () => sys.open(TUN_DEVICE, O_RDWR | O_CLOEXEC, 0)));
  try {
    withPurpose(`create tap "${name}"`, () => sys.ioctl(tap.fd, TUNSETIFF, newIfreq(name, multiQueue)));
    if (owner !== undefined) {
      withPurpose(`give tap "${name}" to user ${owner}`, () => sys.ioctl(tap.fd, TUNSETOWNER, owner));
    }
    if (group !== undefined) {
      withPurpose(`give tap "${name}" to group ${group}`, () => sys.ioctl(tap.fd, TUNSETGROUP, group));
    }
    return tap;
  } catch (error) {
    tap[Symbol.dispose]();
    throw error;
  }
}

/** struct ifreq { char name[16]; short flags; … } */
function newIfreq(name: string, multiQueue: boolean): Uint8Array {
  const request = new Uint8Array(IFREQ_BYTES);
  const encoded = new TextEncoder().encode(name);
  // A pattern would be filled in by the kernel.
  if (encoded.length === 0 || encoded.length >= IFNAMSIZ || name.includes("%") || name.includes("\0")) {
    throw new RangeError(`Cannot create tap ${JSON.stringify(name)}: this is no name of 1 to 15 bytes`);
  }
  request.set(encoded);
  const flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_TUN_EXCL | (multiQueue ? IFF_MULTI_QUEUE : 0);
  new DataView(request.buffer).setUint16(IFNAMSIZ, flags, true);
  return request;
}

/** Has a tap stay when nobody has it open. @throws {SystemError} */
export function persistTap({ fd }: Descriptor): void {
  withPurpose("keep the tap", () => sys.ioctl(fd, TUNSETPERSIST, 1));
}
