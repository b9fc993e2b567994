// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registry of all parts that path text can name: the built-in ones and those of the program.

use std::fmt;
use std::sync::{Arc, OnceLock};

use framepath_model::path::{Definition, DefinitionError, Definitions, Hop};

use crate::element::{Element, HopPlace, Make};
use crate::error::StageError;
use crate::source::Source;
use crate::stage::Stage;
use crate::{queue, sink, source, stage, tee};

/// Returns the built-in elements. Help lists them by heading, under each heading in this order.
fn built_in() -> [Element; 38] {
    [
        source::file::element(),
        source::url::element(),
        source::url::rtp::element(),
        source::recv::element(),
        source::raw::element(),
        source::test::element(),
        source::v4l2::element(),
        source::x11::element(),
        source::wayland::element(),
        source::portal::element(),
        source::kms::element(),
        source::screen::element(),
        source::fixture::element(),
        stage::decode::element(),
        stage::threshold::element(),
        stage::convert::element(),
        stage::scale::element(),
        stage::crop::element(),
        stage::turn::rotate(),
        stage::turn::flip(),
        stage::filter::element(),
        stage::plugin::element(),
        stage::encode::element(),
        stage::burn::element(),
        stage::copy::element(),
        stage::block::element(),
        stage::fill::element(),
        sink::null::element(),
        sink::framemd5::element(),
        sink::y4m::element(),
        sink::raw::element(),
        sink::png::element(),
        sink::pgm::element(),
        sink::mux::element(),
        sink::play::element(),
        sink::send::element(),
        queue::element(),
        tee::element(),
    ]
}

/// The sources, stages, sinks and links that path text can name. Clones are cheap.
///
/// A stage that a program adds has the same help, completion and errors as a built-in stage. It can run in
/// workers if its [`Hosts`](crate::path::Hosts) allow that and the program calls
/// [`worker::init_with`](crate::worker::init_with):
///
/// ```
/// use framepath::path::{Arg, DefaultValue, Definition, Hop, ValueKind};
/// use framepath::{HopFailure, Item, Out, Pipeline, HopPlace, Registry, Stage, StageError, StreamInfo};
///
/// static EVERY: Definition = Definition::stage("every", "every nth frame").args(&[
///     Arg::option("n", ValueKind::count(1, 1000), DefaultValue::Required, "interval in frames"),
/// ]);
///
/// struct Every(u64);
///
/// impl Stage for Every {
///     fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
///         Ok(*info)
///     }
///
///     fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
///         if item.meta().seq % self.0 == 0 { out.push(item) } else { Ok(()) }
///     }
/// }
///
/// let mut registry = Registry::default();
/// registry.add_stage(&EVERY, |hop: &Hop, _: &HopPlace<'_>| Ok(Every(hop.count("n"))))?;
/// let pipeline = Pipeline::parse_with(&registry, "test frames=10 size=64x48 ! every n=4")?;
/// assert_eq!(pipeline.frames()?.count(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Registry {
    definitions: Arc<Definitions>,
    elements: Arc<Vec<Element>>,
}

impl Default for Registry {
    /// Returns a copy of the built-in registry.
    fn default() -> Registry {
        Registry::built_in().clone()
    }
}

impl Registry {
    /// Returns the built-in registry. Functions that make a pipeline or parse text without a registry
    /// parameter use it.
    pub fn built_in() -> &'static Registry {
        static BUILT_IN: OnceLock<Registry> = OnceLock::new();
        BUILT_IN.get_or_init(|| {
            let mut registry = Registry { definitions: Arc::default(), elements: Arc::default() };
            for element in built_in() {
                registry.add(element).expect("the built-in declarations are right");
            }
            registry
        })
    }

    /// Adds a source: the declaration, and a function that makes the source for a hop of a path.
    ///
    /// # Errors
    /// The name is taken, or the declaration contradicts itself or is not that of a source.
    pub fn add_source<S: Source + 'static>(
        &mut self,
        definition: &'static Definition,
        make: impl Fn(&Hop, &HopPlace<'_>) -> Result<S, StageError> + Send + Sync + 'static,
    ) -> Result<(), DefinitionError> {
        self.add(Element::source(definition, make))
    }

    /// Adds a stage or a sink: the declaration, which says which of the two, and a function that makes it
    /// for a hop of a path.
    ///
    /// # Errors
    /// The name is taken, or the declaration contradicts itself or is not that of a stage or sink.
    pub fn add_stage<S: Stage + 'static>(
        &mut self,
        definition: &'static Definition,
        make: impl Fn(&Hop, &HopPlace<'_>) -> Result<S, StageError> + Send + Sync + 'static,
    ) -> Result<(), DefinitionError> {
        self.add(Element::stage(definition, make))
    }

    fn add(&mut self, element: Element) -> Result<(), DefinitionError> {
        if !element.is_whole() {
            return Err(DefinitionError::Kind(element.definition.name));
        }
        Arc::make_mut(&mut self.definitions).add(element.definition)?;
        Arc::make_mut(&mut self.elements).push(element);
        Ok(())
    }

    /// Returns the declarations, which parse path text and print help pages.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// Makes the stage or sink that `hop` names, to run in this process. An error if `hop` names a source or
    /// a link, or an element that is not in this registry.
    pub(crate) fn make_stage(&self, hop: &Hop, place: &HopPlace<'_>) -> Result<Box<dyn Stage>, StageError> {
        match &self.element(hop)?.make {
            Make::Stage(make) => make(hop, place),
            Make::Source(_) | Make::Queue | Make::Tee => {
                Err(StageError::Option(format!("`{}` is not a stage", hop.name())))
            }
        }
    }

    /// Returns the element that `hop` names; an error if it is not in this registry.
    pub(crate) fn element(&self, hop: &Hop) -> Result<&Element, StageError> {
        let element = self.elements.iter().find(|element| element.definition.name == hop.name());
        element.ok_or_else(|| StageError::Option(format!("`{}` is not in this registry", hop.name())))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.definitions.iter().map(|definition| definition.name)).finish()
    }
}
