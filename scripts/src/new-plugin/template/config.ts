/** The configuration of the `new-plugin` plugin. @module */
import { type Infer, int, lazy, object, withDefault } from "../../../../spec/schema.ts";

/** The keys of the `new-plugin` plugin. */
export const newPluginConfig = lazy(() =>
  object({
    /** The group that the interface is put into. A key has a default: DEL must do without it. */
    group: withDefault(int({ min: 1, max: 0xffff_ffff }), 1),
  })
);

/** The result of {@linkcode newPluginConfig}. */
export type NewPluginConfig = Infer<typeof newPluginConfig>;
