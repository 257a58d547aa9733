//! FlexVolume: programs that attach volumes to nodes and mount them, below a directory of plugins.
//!
//! ```text
//! <directory>/<vendor>~<driver>/<driver> init
//! <directory>/<vendor>~<driver>/<driver> getvolumename <options>
//! <directory>/<vendor>~<driver>/<driver> attach <options> <node>              the attach/detach controller, or the agent
//! <directory>/<vendor>~<driver>/<driver> isattached <options> <node>          the attach/detach controller
//! <directory>/<vendor>~<driver>/<driver> expandvolume <options> <directory> <new size> <old size>     the expander
//! <directory>/<vendor>~<driver>/<driver> waitforattach <device> <options>     the agent, as all that follow
//! <directory>/<vendor>~<driver>/<driver> mountdevice <directory> <device> <options>
//! <directory>/<vendor>~<driver>/<driver> mount <directory> <options>
//! <directory>/<vendor>~<driver>/<driver> expandfs <options> <device> <directory> <new size> <old size>
//! <directory>/<vendor>~<driver>/<driver> unmount <directory>
//! <directory>/<vendor>~<driver>/<driver> unmountdevice <directory>
//! <directory>/<vendor>~<driver>/<driver> detach <volume> <node>               who attached
//! ```
//!
//! Options are JSON. A program prints JSON: `{"status": "Success"}`, `Failure` with a message, or `Not supported`.
//!
//! | module | what it is |
//! |---|---|
//! | `driver` | the programs, and calls to them |
//! | `source` | a volume as its object describes it, and its options |

mod driver;
mod source;

pub use driver::{CallError, DriverAnswer, DriverCapabilities, FlexDrivers};
pub use source::{FlexSource, option, split_unique_name};
