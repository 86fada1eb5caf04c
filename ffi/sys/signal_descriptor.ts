import { type Descriptor, descriptor } from "./file.ts";
import { sys } from "./libc.ts";
import { blockForGood, newSigset } from "./signals.ts";
import { O_CLOEXEC } from "./uapi.ts";

export interface SignalDescriptor extends Descriptor {
  read(): number;
}

/** A descriptor for signals, which are blocked. @see signalfd(2) */
export function openSignals(signals: readonly number[]): SignalDescriptor {
  const SFD_CLOEXEC = O_CLOEXEC;
  blockForGood(signals);
  const file = descriptor(sys.signalfd(-1, newSigset(signals), SFD_CLOEXEC));
  return {
    ...file,
    read() {
      // struct signalfd_siginfo of 128 bytes begins with the number.
      const info = new Uint32Array(32);
      sys.read(file.fd, new Uint8Array(info.buffer), 128);
      return info[0]!;
    },
  };
}
