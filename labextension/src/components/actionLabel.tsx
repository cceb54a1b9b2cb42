// The name of a kernel in the Running panel, with a button that says what it does.
import * as React from 'react';

/** The name and the button. */
export function ActionLabel(props: {
  name: string;
  /** Name and state in full, for the tooltip: both are cut where the panel is narrow. */
  whole: string;
  action: string;
  title: string;
  act: () => void;
}): React.JSX.Element {
  return (
    <span className="jp-replkernel-resting">
      <span className="jp-replkernel-part" title={props.whole}>
        {props.name}
      </span>
      <button
        type="button"
        className="jp-Button jp-mod-styled jp-mod-minimal"
        title={props.title}
        onClick={event => {
          event.stopPropagation();
          props.act();
        }}
      >
        {props.action}
      </button>
    </span>
  );
}
