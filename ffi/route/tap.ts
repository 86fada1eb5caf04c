/**
 * Taps: Ethernet interfaces whose other end is a program. ioctl(2) makes them; netlink only shows them.
 *
 * @see linux/if_tun.h, Documentation/networking/tuntap.rst
 * @module
 */
import { withPurpose } from "../sys/error.ts";
import { type Descriptor, descriptor } from "../sys/file.ts";
import { sys } from "../sys/libc.ts";
import { IFNAMSIZ, O_CLOEXEC, O_RDWR } from "../sys/uapi.ts";
import { IFF_MULTI_QUEUE, IFF_NO_PI, IFF_TAP, TUNSETIFF } from "./uapi.ts";

/** Absent where the kernel has no taps. */
export const TUN_DEVICE = "/dev/net/tun";

// linux/if_tun.h
const TUNSETPERSIST = 0x400454cb;
const TUNSETOWNER = 0x400454cc;
const TUNSETGROUP = 0x400454ce;
const IFF_VNET_HDR = 0x4000;
const IFF_TUN_EXCL = 0x8000;

// sizeof(struct ifreq), linux/if.h
const IFREQ_BYTES = 40;

export interface TapOptions {
  readonly multiQueue?: boolean;
  readonly owner?: number;
  readonly group?: number;
}

/**
 * By default, frames have virtio's header and not the tun driver's.
 *
 * @returns closing it removes the tap, unless {@linkcode persistTap} was called
 * @throws {SystemError} `EBUSY` if the name is taken
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

// struct ifreq { char name[16]; short flags; … }
function newIfreq(name: string, multiQueue: boolean): Uint8Array {
  const request = new Uint8Array(IFREQ_BYTES);
  const encoded = new TextEncoder().encode(name);
  // The kernel fills in "%".
  if (encoded.length === 0 || encoded.length >= IFNAMSIZ || name.includes("%") || name.includes("\0")) {
    throw new RangeError(`Cannot create tap ${JSON.stringify(name)}: this is no name of 1 to 15 bytes`);
  }
  request.set(encoded);
  const flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_TUN_EXCL | (multiQueue ? IFF_MULTI_QUEUE : 0);
  new DataView(request.buffer).setUint16(IFNAMSIZ, flags, true);
  return request;
}

/** Keeps a tap that nobody has open. */
export function persistTap({ fd }: Descriptor): void {
  withPurpose("keep the tap", () => sys.ioctl(fd, TUNSETPERSIST, 1));
}
