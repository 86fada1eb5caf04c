import { type Descriptor, descriptor } from "./file.ts";
import { addressOf, sys } from "./libc.ts";
import { CLOCK_BOOTTIME } from "./boot_clock.ts";
import { O_CLOEXEC } from "./uapi.ts";

const arm = process.arch === "arm64";
const SYS_timerfd_create = arm ? 85 : 283;
const SYS_timerfd_settime = arm ? 86 : 286;
const TFD_TIMER_ABSTIME = 1;

/** Poll() has a timeout that begins anew where a suspension has stopped it; this timer does not. */
export interface BootTimer extends Descriptor {
  /** @param ms since the boot; infinite: never */
  set(ms: number): void;
}

/** @see timerfd_create(2) */
export function openBootTimer(): BootTimer {
  // TFD_CLOEXEC is O_CLOEXEC.
  const timer = descriptor(sys.syscall(SYS_timerfd_create, CLOCK_BOOTTIME, O_CLOEXEC, 0, 0));
  let current = Infinity;
  return {
    ...timer,
    set(ms) {
      if (ms === current) return;
      current = ms;
      // Zero would stop the timer.
      const nanoseconds = ms === Infinity ? 0n : BigInt(Math.max(1, Math.ceil(ms * 1e6)));
      // struct itimerspec { struct timespec it_interval; struct timespec it_value; }
      const times = BigInt64Array.of(0n, 0n, nanoseconds / 1_000_000_000n, nanoseconds % 1_000_000_000n);
      sys.syscall(SYS_timerfd_settime, timer.fd, TFD_TIMER_ABSTIME, addressOf(times), 0);
    },
  };
}
