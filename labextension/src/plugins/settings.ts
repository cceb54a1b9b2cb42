// The settings, for all parts that follow them. Their schema is `schema/settings.json`.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Signal } from '@lumino/signaling';

import type { IPreferences } from '../models/prefs';
import { DEFAULTS, readPreferences } from '../models/prefs';
import { ISettings } from '../tokens';

const ID = '@replkernel/labextension:settings';

class Settings implements ISettings {
  value: IPreferences = DEFAULTS;
  readonly changed: Signal<ISettings, void> = new Signal<ISettings, void>(this);

  constructor(registry: ISettingRegistry | null) {
    registry?.load(ID).then(
      found => {
        const read = (): void => {
          this.value = readPreferences(found.composite);
          this.changed.emit();
        };
        found.changed.connect(read);
        read();
      },
      (error: unknown) => {
        console.warn('The settings of replicated kernels cannot be read; their defaults hold.', error);
      }
    );
  }
}

/** Provides the settings. */
export const settingsPlugin: JupyterFrontEndPlugin<ISettings> = {
  id: ID,
  description: 'What is shown of replicated kernels, as a person has set it.',
  autoStart: true,
  provides: ISettings,
  optional: [ISettingRegistry],
  activate: (_: JupyterFrontEnd, registry: ISettingRegistry | null) => new Settings(registry)
};
